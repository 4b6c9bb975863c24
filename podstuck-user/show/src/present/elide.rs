//! Shortens paths that are longer than a line of the terminal.

use std::borrow::Cow;

use textwrap::core::display_width;

/// Stands for the part left out.
const ELLIPSIS: &str = "…";
/// Fewer columns would make a path meaningless.
const FEWEST: usize = 24;

/// Leaves out the middle of a path that takes more than `columns`. More is kept of its end, which says most, and
/// whole names where they fit.
pub(super) fn middle(path: &str, columns: usize) -> Cow<'_, str> {
    let columns = columns.max(FEWEST);
    if display_width(path) <= columns {
        return path.into();
    }
    let room = columns - display_width(ELLIPSIS);
    let tail = tail(path, room * 2 / 3);
    let head = head(path, room - display_width(tail));
    format!("{head}{ELLIPSIS}{tail}").into()
}

/// As many of the last names as fit.
fn tail(path: &str, columns: usize) -> &str {
    let fits = |from: &usize| display_width(&path[*from..]) <= columns;
    let names = path.match_indices('/').map(|(at, _)| at).find(fits);
    let letters = || path.char_indices().map(|(at, _)| at).find(fits);
    &path[names.or_else(letters).unwrap_or(path.len())..]
}

/// As many of the first names as fit.
fn head(path: &str, columns: usize) -> &str {
    let fits = |to: &usize| display_width(&path[..*to]) <= columns;
    // The root alone says nothing.
    let mut names =
        path.match_indices('/').map(|(at, slash)| at + slash.len()).filter(|to| *to > 1);
    let letters = || path.char_indices().map(|(at, _)| at).rfind(fits);
    &path[..names.rfind(fits).or_else(letters).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_stay_with_whole_names() {
        let path = "/var/lib/kubelet/pods/368ce161-0197-4cb0-bc5e-df083bb10fa2/volumes/data/store/index/journal.db";
        assert_eq!(middle(path, 60), "/var/lib/kubelet/pods/…/volumes/data/store/index/journal.db");
        assert_eq!(middle(path, path.len()), path);
        assert_eq!(middle(path, 0), "/var/lib/…/journal.db");
    }

    #[test]
    fn names_longer_than_the_line_are_cut_and_nothing_is_split_within_a_character() {
        let long = format!("/{}", "x".repeat(300));
        assert_eq!(display_width(&middle(&long, 80)), 80);
        let wide = format!("/{}/{}", "漢".repeat(90), "字".repeat(90));
        for columns in 24..100 {
            let short = middle(&wide, columns);
            assert!(display_width(&short) <= columns, "{columns}: {short}");
            assert!(short.starts_with('/') && short.ends_with('字'), "{columns}: {short}");
        }
    }
}
