//! What running runtimes were told about where their data is, from their command lines and configuration: the
//! helper's side.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    as_process::{enter, words},
    helper::{Question, Teller, ask},
    kubelet::read,
};
use crate::{
    identity::data_roots::{Told, config_of},
    kernel::role::Role,
    model::identity::Component,
};

/// What a runtime was told.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadRuntime {
    host_root: PathBuf,
    pid: u32,
    component: Component,
}

impl Question for ReadRuntime {
    const ROLE: Role = Role::HelperInside;
    type Step = ();
    type Part = ();
    type Answer = Told;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Told> {
        let words = words(&self.host_root, self.pid)?;
        enter(&self.host_root, self.pid)?;
        // Most have none, or one that says nothing of this.
        let file = config_of(self.component, &words).filter(|path| path.exists());
        let (config, unread) = match file.as_deref().map(read).transpose() {
            Ok(config) => (config.unwrap_or_default(), None),
            Err(why) => (String::new(), Some(format!("its configuration: {why:#}"))),
        };
        Ok(Told { words, config, unread })
    }
}

/// What a runtime was told; `None` for one that has ended, or whose files do not answer within two seconds.
pub(crate) fn told(host_root: &std::path::Path, pid: u32, component: Component) -> Option<Told> {
    let question = ReadRuntime { host_root: host_root.into(), pid, component };
    let told = ask(question).map_err(|why| tracing::info!("runtime (pid {pid}): {why}")).ok()?;
    if let Some(why) = &told.unread {
        tracing::info!("runtime (pid {pid}): {why}");
    }
    Some(told)
}
