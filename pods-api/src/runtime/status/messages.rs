//! The bound on termination messages (rule C.2.8): a pod's status must not grow with what its containers write.

use super::v1;

/// What all termination messages of one pod may take together, in bytes.
const MAX_POD_BYTES: usize = 12 * 1024;

/// Cuts every termination message of the pod to its container's share.
pub(super) fn limit(status: &mut v1::PodStatus, init_and_regular: usize) {
    let share = MAX_POD_BYTES / init_and_regular.max(1);
    let entries = status.init_container_statuses.iter_mut().chain(&mut status.container_statuses);
    for entry in entries.chain(&mut status.ephemeral_container_statuses) {
        for state in [&mut entry.state, &mut entry.last_state].into_iter().flatten() {
            if let Some(message) =
                state.terminated.as_mut().and_then(|terminated| terminated.message.as_mut())
            {
                message.truncate(message.floor_char_boundary(share));
            }
        }
    }
}
