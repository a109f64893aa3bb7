//! `whoami`: what the server takes this caller for, and which rule of its access policy admits it.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use pods_api_proto::podsapi::v1::node_client::NodeClient;
use pods_api_proto::podsapi::v1::{WhoAmIRequest, WhoAmIResponse};
use serde_json::{Map, Value};

use super::Target;
use super::connect::connect;
use super::error::Error;

/// The arguments of `whoami`.
#[derive(Debug, Args)]
pub struct WhoAmI {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// As JSON
    Json,
}

impl WhoAmI {
    pub(super) async fn run(self) -> Result<(), Error> {
        let channel = connect(&self.target.socket).await?;
        let answer = NodeClient::new(channel).who_am_i(WhoAmIRequest {}).await?.into_inner();
        let text = match self.output {
            Format::Text => describe(&answer),
            Format::Json => format!("{:#}\n", Value::Object(json(&answer))),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

fn describe(answer: &WhoAmIResponse) -> String {
    let or = |text: &str, otherwise: &str| {
        if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
    };
    let pod = match (&*answer.pod_uid, &*answer.pod_name) {
        ("", _) if answer.known => "none: a process of the host".to_owned(),
        ("", _) => "unknown: it is not sure which process is calling, or where it runs".to_owned(),
        (uid, "") => format!("{uid}, which the server does not know"),
        (uid, name) => format!("{}/{name}, UID {uid}", answer.pod_namespace),
    };
    let container = match (&*answer.container_name, &*answer.container_id) {
        ("", id) => or(id, "none"),
        (name, id) => format!("{name}, ID {id}"),
    };
    let pid = match answer.pid {
        0 => "unknown: in a PID namespace that the server does not see".to_owned(),
        pid => pid.to_string(),
    };
    format!(
        "process     {pid}\nexecutable  {}\nuser        {}\ngroup       {}\npod         {pod}\ncontainer   {container}\n\
         admitted by {}\n",
        or(&answer.executable, "unknown"),
        answer.uid,
        answer.gid,
        or(&answer.rule, "no rule: every call but this is refused"),
    )
}

/// The answer as protobuf's JSON mapping has it, but with every field.
fn json(answer: &WhoAmIResponse) -> Map<String, Value> {
    let fields: [(&str, Value); 11] = [
        ("pid", answer.pid.into()),
        ("uid", answer.uid.into()),
        ("gid", answer.gid.into()),
        ("known", answer.known.into()),
        ("podUid", (&*answer.pod_uid).into()),
        ("podNamespace", (&*answer.pod_namespace).into()),
        ("podName", (&*answer.pod_name).into()),
        ("containerId", (&*answer.container_id).into()),
        ("containerName", (&*answer.container_name).into()),
        ("rule", (&*answer.rule).into()),
        ("executable", (&*answer.executable).into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(answer: &WhoAmIResponse, name: &str) -> String {
        let text = describe(answer);
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name} in {text}")).trim().to_owned()
    }

    #[test]
    fn a_caller_in_a_pod_is_named_by_pod_and_container() {
        let mut answer = WhoAmIResponse {
            pid: 7,
            known: true,
            pod_uid: "u-1".into(),
            pod_namespace: "shop".into(),
            pod_name: "web".into(),
            container_id: "c0ffee".into(),
            container_name: "main".into(),
            rule: "namespace=shop".into(),
            ..Default::default()
        };
        assert_eq!(line(&answer, "pod "), "shop/web, UID u-1");
        assert_eq!(line(&answer, "container"), "main, ID c0ffee");
        assert_eq!(line(&answer, "admitted by"), "namespace=shop");
        answer.pod_name.clear();
        answer.container_name.clear();
        assert_eq!(line(&answer, "pod "), "u-1, which the server does not know");
        assert_eq!(line(&answer, "container"), "c0ffee");
    }

    #[test]
    fn unknown_and_host_callers_are_told_apart() {
        let mut answer = WhoAmIResponse::default();
        assert!(line(&answer, "pod ").starts_with("unknown"));
        assert!(line(&answer, "process").starts_with("unknown"));
        assert!(line(&answer, "admitted by").starts_with("no rule"));
        answer.known = true;
        assert!(line(&answer, "pod ").starts_with("none"));
    }
}
