//! The holders of an object, one paragraph each, and what that means for an unmount.

use super::nouns::{self, text};
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::holder::{Holder, Search, Through};

/// One holder.
pub fn holder(holder: &Holder, style: Style) -> String {
    let mut out = format!("{}\n", style.paint(Ink::Command, &who(holder)));
    let mut what = format!("{}: {}", holder.how.phrase(), nouns::path(&holder.object));
    if holder.count > 1 {
        what.push_str(&format!(", and {} more", words::count(u64::from(holder.count) - 1)));
    }
    what.push_str(&format!(" [{}]", text(&holder.source)));
    out.push_str(&style.wrap("  ", "    ", &what));
    out.push_str(&style.wrap("  ", "    ", &through(holder)));
    out.push_str(&style.wrap("  ", "    ", meaning(holder)));
    out
}

/// `backup (pid 42) in pod shop/cart-0, container …`
fn who(holder: &Holder) -> String {
    let mut who = text(&holder.who().to_string());
    if let Some(pod) = &holder.pod {
        who.push_str(&format!(" in pod {}", nouns::pod_short(pod)));
    } else if let Some(cgroup) = &holder.cgroup {
        who.push_str(&format!(" in cgroup {}", text(cgroup)));
    }
    if let Some(container) = &holder.container {
        who.push_str(&format!(", container {}", text(container)));
    }
    who
}

fn through(holder: &Holder) -> String {
    let kind = match holder.through {
        Through::Itself => "this mount itself",
        Through::PropagatedCopy => "a copy that receives its unmount",
        Through::OtherMount => "another mount of the same file system",
        Through::Detached => {
            "a mount that is no longer in any mount namespace (as after umount -l)"
        }
    };
    let sure = if holder.exact { "" } else { ", matched by the text of the path only" };
    match holder.mount.namespace {
        Some(namespace) => format!(
            "through {kind}: mount {} at {} in mount namespace {namespace}{sure}",
            holder.mount.id,
            nouns::path(&holder.mount.point)
        ),
        None => {
            let from = holder.mount.detached.as_ref().map(|it| format!(" of {}", it.describe()));
            format!("through {kind}: mount {}{}{sure}", holder.mount.id, from.unwrap_or_default())
        }
    }
}

fn meaning(holder: &Holder) -> &'static str {
    match holder.explains_ebusy {
        Some(true) => "makes umount fail with EBUSY",
        Some(false) => "does not make umount fail; keeps the file system and its device alive",
        None => "keeps it in use",
    }
}

/// What was searched, and the total.
pub fn search(search: &Search, style: Style) -> String {
    let label = |name: &str| style.paint(Ink::Label, name);
    let mut out =
        format!("{}: {}\n", nouns::path(&search.subject.path), text(&search.subject.what));
    let found = match (search.holders, search.explain_ebusy) {
        (0, _) => "no process holds it".to_owned(),
        (all, explain) => {
            let all = words::plural(all as u64, "holder", "holders");
            format!("{all}, {} of them make umount fail with EBUSY", words::count(explain as u64))
        }
    };
    let looked_at = format!(
        "{found}; searched {}, {} and {}",
        words::plural(search.processes as u64, "process", "processes"),
        words::plural(search.namespaces as u64, "mount namespace", "mount namespaces"),
        words::plural(search.mounts as u64, "mount", "mounts"),
    );
    out.push_str(&style.wrap("", "  ", &looked_at));
    for unseen in &search.unseen {
        let line = format!("{} {}", label("not searched:"), text(unseen));
        out.push_str(&style.wrap("", "  ", &line));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample::{self, HOSTILE};
    use podstuck_model::{
        holder::{Detached, MountedFrom},
        path::JsonPath,
    };

    #[test]
    fn a_holder_is_shown_with_its_meaning() {
        assert_eq!(
            holder(&sample::holder(), Style::PLAIN),
            "\
agent (pid 42) in pod shop/cart-0, container 0123
  has it open: /host/v/log, and 2 more [/proc/42/fdinfo/7]
  through a copy that receives its unmount: mount 77 at /host/v in mount namespace 4026532001
  makes umount fail with EBUSY
"
        );
    }

    #[test]
    fn a_detached_mount_is_named_by_its_file_system_or_the_reason_is_given() {
        let shown = |detached| {
            let mut one = sample::holder();
            (one.through, one.mount.namespace) = (Through::Detached, None);
            one.mount.detached = Some(detached);
            let shown = holder(&one, Style::PLAIN);
            shown.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let known = Detached::Known(MountedFrom {
            fs_type: "ext4".into(),
            source: "/dev/sdb1\u{1b}".into(),
            root: JsonPath("/v".into()),
        });
        let known = shown(known);
        assert!(known.contains(r"mount 77 of directory /v of /dev/sdb1\x1b (ext4)"), "{known}");
        let error = shown(Detached::Error("why".into()));
        assert!(error.contains("mount 77 of unknown file system: why"), "{error}");
    }

    #[test]
    fn no_holder_is_an_answer_too() {
        let search = super::search(&sample::search(), Style::PLAIN);
        assert_eq!(
            search,
            "\
/v: mount of tmpfs of type tmpfs, device 0:45
no process holds it; searched 120 processes, 3 mount namespaces and 1,000 mounts
not searched: mapped files of pid 7
"
        );
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut hostile = sample::holder();
        hostile.comm = Some(HOSTILE.into());
        hostile.object.0 = HOSTILE.into();
        hostile.mount.point.0 = HOSTILE.into();
        hostile.cgroup = Some(HOSTILE.into());
        hostile.pod = None;
        let shown = holder(&hostile, Style::PLAIN);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    }
}
