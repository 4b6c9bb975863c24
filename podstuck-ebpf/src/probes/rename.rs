//! A target that is renamed before its deletion, to a place outside of any target, remains the same target: `mv
//! pods/<uid>/volumes/.../data /trash` and `rm -rf /trash/data` delete a pod's data.

use podstuck_common::record::reason;

use super::{
    globals::config, locate::locate, maps::ANNOUNCED, moved, report::report, returned::NOT_READ,
    slot::global_function,
};

global_function! {
    /// Processes a successful rename.
    ///
    /// The directories above both names are unchanged, so both paths can still be read.
    pub(crate) fn renamed(slot) -> u32 {
        locate(slot);
        let scratch = slot.scratch();
        let was = scratch.call.trail;
        if was.target == 0 || was.target != was.path || was.is_look_alike(config()) {
            return 0;
        }
        if ANNOUNCED.get_ptr(was.target).is_none() {
            report(slot, reason::FIRST);
        }
        let scratch = slot.scratch();
        scratch.call.entry.path = scratch.call.entry.second;
        scratch.call.entry.dirfd = scratch.call.entry.flags as i32;
        scratch.call.argument = NOT_READ;
        locate(slot);
        let scratch = slot.scratch();
        let now = &scratch.call.trail;
        // A look-alike path could not be distinguished when it is looked up.
        if now.target == 0 && now.cut == 0 && now.is_known(config()) {
            moved::note(&was, now.path);
        }
        0
    }
}
