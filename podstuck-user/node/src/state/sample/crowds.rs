//! Mount namespaces with very many mounts. A table is searched only when it has changed.

use std::{collections::HashMap, sync::Arc};

use super::views::View;
use podstuck_model::{crowd::Crowd, mounts::Mounts};

/// The result for each table, kept while the table is unchanged.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    /// By namespace. As many as there are views.
    known: HashMap<u32, (Arc<Mounts>, Option<Crowd>)>,
}

impl Crowds {
    /// The crowded namespaces among these views.
    pub(super) fn of(&mut self, views: &[View]) -> Vec<Crowd> {
        let mut before = std::mem::take(&mut self.known);
        let mut found = Vec::new();
        for View { namespace, mounts, .. } in views {
            let known = before.remove(namespace).filter(|(table, _)| Arc::ptr_eq(table, mounts));
            let crowd = match known {
                Some((_, crowd)) => crowd,
                None => Crowd::of(*namespace, mounts),
            };
            found.extend(crowd.clone());
            self.known.insert(*namespace, (mounts.clone(), crowd));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::{crowd::VERY_MANY, mounts::Mount};

    #[test]
    fn only_a_crowded_namespace_is_reported() {
        let view = |namespace, count: u32| {
            let mount = |id| Mount { id, point: format!("/a/{id}").into(), ..Mount::default() };
            let all = (0..count).map(mount).collect();
            View { pid: 1, namespace, mounts: Arc::new(Mounts { all, ..Mounts::default() }) }
        };
        let many = u32::try_from(VERY_MANY).unwrap();
        let views = [view(1, 50), view(2, many)];
        let mut crowds = Crowds::default();
        let first = crowds.of(&views);
        assert_eq!(first.iter().map(|crowd| crowd.namespace).collect::<Vec<_>>(), [2]);
        assert_eq!(crowds.of(&views), first);
        assert_eq!(crowds.of(&[view(2, many - 1)]), []);
    }
}
