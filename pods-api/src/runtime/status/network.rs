//! The pod's addresses (rules C.3).

use std::net::IpAddr;

use super::{Context, v1};

/// The addresses of a pod; `None` where those of the old status stay.
pub(super) fn pod_ips(context: &Context<'_>) -> Option<Vec<IpAddr>> {
    let host_ips = host_ips(context);
    if context.facts.is_host_network() {
        return host_network_ips(context, &host_ips);
    }
    // A finished pod still shows its address, also between the end of one sandbox and the next (rule C.3.4).
    context.runtime.active_sandbox().map(|active| one_per_family(&active.ips, host_ips.first()))
}

/// A pod on the node's network has the node's addresses (rule C.3.7).
fn host_network_ips(context: &Context<'_>, host_ips: &[IpAddr]) -> Option<Vec<IpAddr>> {
    let mut ips = old_ips(context);
    if ips.is_empty() {
        ips.push(*host_ips.first()?);
    }
    if let ([first], Some(second)) = (&*ips, host_ips.get(1))
        && first.is_ipv4() != second.is_ipv4()
    {
        ips.push(*second);
    }
    Some(ips)
}

/// The node's addresses: the kubelet's word first.
fn host_ips(context: &Context<'_>) -> Vec<IpAddr> {
    let external = context.base.into_iter().flat_map(|base| &base.host_i_ps);
    let external: Vec<IpAddr> = external.filter_map(|host| host.ip().parse().ok()).collect();
    if external.is_empty() { context.node.host_ips.clone() } else { external }
}

/// The addresses that the old status shows.
fn old_ips(context: &Context<'_>) -> Vec<IpAddr> {
    let of = |status: Option<&v1::PodStatus>| -> Vec<IpAddr> {
        status
            .into_iter()
            .flat_map(|status| &status.pod_i_ps)
            .filter_map(|pod| pod.ip().parse().ok())
            .collect()
    };
    let previous = of(context.previous);
    if previous.is_empty() { of(context.base) } else { previous }
}

/// At most one address per family, that of the node's first address first, IPv4 where that is unknown (rule C.3.5).
fn one_per_family(ips: &[IpAddr], node: Option<&IpAddr>) -> Vec<IpAddr> {
    let is_v4_first = node.is_none_or(|ip| ip.is_ipv4());
    let first_of = |is_v4: bool| ips.iter().copied().find(|ip| ip.is_ipv4() == is_v4);
    [first_of(is_v4_first), first_of(!is_v4_first)].into_iter().flatten().collect()
}

/// Whether a status shows these addresses and no others.
pub(super) fn shows(status: &v1::PodStatus, ips: &[IpAddr]) -> bool {
    let shown = status.pod_i_ps.iter().map(|pod| pod.ip().parse().ok());
    shown.eq(ips.iter().map(|ip| Some(*ip)))
}

/// Writes the addresses into a status.
pub(super) fn set(status: &mut v1::PodStatus, context: &Context<'_>, ips: Option<Vec<IpAddr>>) {
    let ips = ips.unwrap_or_else(|| old_ips(context));
    status.pod_ip = ips.first().map(IpAddr::to_string);
    status.pod_i_ps = ips.iter().map(|ip| v1::PodIp { ip: Some(ip.to_string()) }).collect();
    if status.host_i_ps.is_empty() && !context.node.host_ips.is_empty() {
        status.host_ip = context.node.host_ips.first().map(IpAddr::to_string);
        status.host_i_ps =
            context.node.host_ips.iter().map(|ip| v1::HostIp { ip: Some(ip.to_string()) }).collect();
    }
}
