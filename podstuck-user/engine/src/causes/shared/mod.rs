//! Code that several families of causes share.

pub(crate) mod blamed;
pub(crate) mod claim;
pub(crate) mod clean_up;
pub(crate) mod clients;
pub(crate) mod forced_deletion;
pub(crate) mod fuse;
pub(crate) mod halted;
pub(crate) mod holders;
pub(crate) mod hung_command;
pub(crate) mod kernel_lock;
pub(crate) mod kernel_says;
pub(crate) mod kubelets_list;
pub(crate) mod moments;
pub(crate) mod pending_deletion;
pub(crate) mod repeated;
pub(crate) mod sharers;
pub(crate) mod stalled;
pub(crate) mod standing;
pub(crate) mod stat_errors;
pub(crate) mod thaw;
pub(crate) mod unit;
