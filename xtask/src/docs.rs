//! `cargo xtask docs`: writes the catalogue of causes into the documents, or checks that the documents match it.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use podstuck_engine::{
    catalogue,
    cause::{By, Cause, Origin, Proof, TriedWith},
    model::evidence::Certainty,
    versions::{self, Versions},
};

use crate::workspace::Workspace;

/// How to run it.
#[derive(Args)]
pub(crate) struct Options {
    /// Write nothing; fail where a document says something else than the catalogue
    #[arg(long)]
    check: bool,
}

/// The generated part of a document is between these two lines.
const BEGIN: &str = "<!-- causes: written by `cargo xtask docs` -->";
const END: &str = "<!-- causes: end -->";
/// One page for each cause.
const PAGES: &str = "docs/causes";

/// Writes all documents, or checks them.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.check { check(workspace) } else { write(workspace) }
}

/// Fails if a document differs from the catalogue.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    println!("comparing the documents with the catalogue of causes");
    let mut wrong = Vec::new();
    for (path, wanted) in documents(workspace)? {
        let found = fs::read_to_string(workspace.root.join(&path)).unwrap_or_default();
        if found != wanted {
            wrong.push(path.display().to_string());
        }
    }
    wrong.extend(stale(workspace)?.iter().map(|path| path.display().to_string()));
    if !wrong.is_empty() {
        bail!(
            "not as the catalogue of causes says: {}; `cargo xtask docs` writes them",
            wrong.join(", ")
        );
    }
    Ok(())
}

fn write(workspace: &Workspace) -> Result<()> {
    let pages = workspace.root.join(PAGES);
    fs::create_dir_all(&pages).with_context(|| format!("making {}", pages.display()))?;
    for (path, text) in documents(workspace)? {
        let path = workspace.root.join(path);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for path in stale(workspace)? {
        let path = workspace.root.join(path);
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// Every generated document, with its path below the workspace.
fn documents(workspace: &Workspace) -> Result<BTreeMap<PathBuf, String>> {
    let mut documents = BTreeMap::new();
    let generated = [
        ("docs/causes.md", causes_table()),
        ("docs/labs.md", tried_table()),
        ("docs/proof.md", proof_table()),
        ("docs/SUMMARY.md", chapters()),
    ];
    for (path, table) in generated {
        let file = workspace.root.join(path);
        let text =
            fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let text = between_marks(&text, &table)
            .with_context(|| format!("{path} has no line {BEGIN:?} with a line {END:?} below"))?;
        documents.insert(PathBuf::from(path), text);
    }
    for cause in catalogue::all() {
        documents.insert(page_path(cause), page(cause));
    }
    Ok(documents)
}

fn page_path(cause: &Cause) -> PathBuf {
    PathBuf::from(format!("{PAGES}/{}.md", cause.id))
}

/// Pages of causes that are no longer in the catalogue.
fn stale(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root.join(PAGES);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut stale = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = PathBuf::from(PAGES).join(entry?.file_name());
        if !catalogue::all().any(|cause| page_path(cause) == path) {
            stale.push(path);
        }
    }
    Ok(stale)
}

/// A document with its generated part replaced; `None` without the two marks.
fn between_marks(text: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{part}\n{END}{after}"))
}

/// The book's table. Causes with the same title and the same remedy share a row.
fn causes_table() -> String {
    let mut rows: Vec<(Vec<&Cause>, &str)> = Vec::new();
    for cause in catalogue::all() {
        let way = cause.ways_out.first().map_or("", |way| way.action);
        match rows.last_mut() {
            Some((same, out)) if *out == way && same[0].title == cause.title => same.push(cause),
            _ => rows.push((vec![cause], way)),
        }
    }
    let mut table = String::from("| finding | what it means | remedy |\n|---|---|---|\n");
    for (causes, way) in rows {
        let names: Vec<String> = causes.iter().map(|cause| link(cause, "causes/")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {} | {} | {way} |", names.join(", "), causes[0].title);
    }
    table
}

/// The book's chapters, one for each cause.
fn chapters() -> String {
    let mut chapters =
        String::from("- [What proves each cause](proof.md)\n- [All causes](causes.md)\n");
    for cause in catalogue::all() {
        // Writing to a string cannot fail.
        let _ = writeln!(chapters, "  - [{0}](causes/{0}.md)", cause.id);
    }
    chapters
}

/// The requirements of each cause for a firm finding.
fn proof_table() -> String {
    let mut table = String::from(
        "| cause | facts that must be seen, and where | concluded from an absence, and what must be complete for it | at most |\n|---|---|---|---|\n",
    );
    for cause in catalogue::all() {
        let (mut seen, mut absent) = (Vec::new(), Vec::new());
        for proof in cause.confirmed_by {
            match proof.by {
                By::Seen(from) | By::OrSeen(from) => {
                    seen.push(format!("{} ({})", proof.fact, origins(from)));
                }
                By::Absent(feed) => absent.push(format!("{}: {}", proof.fact, feed.completeness())),
            }
        }
        let most = Certainty::at_most(cause).word();
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {most} |",
            link(cause, "causes/"),
            seen.join("; "),
            absent.join("; "),
        );
    }
    table
}

fn origins(from: &[Origin]) -> String {
    if from.is_empty() {
        return "not visible to podstuck".into();
    }
    from.iter().map(|origin| origin.words()).collect::<Vec<_>>().join(" or ")
}

/// The wording on a page.
fn confirmed(proof: &Proof) -> String {
    match proof.by {
        By::Seen(from) | By::OrSeen(from) => format!("{} ({})", proof.fact, origins(from)),
        By::Absent(feed) => {
            format!(
                "{} (an absence, which counts where complete: {})",
                proof.fact,
                feed.completeness()
            )
        }
    }
}

/// The evidence that exists for each cause.
fn tried_table() -> String {
    let mut table = String::from(
        "| cause | field | real kubelet | real runtime | real API server | lab | recording | objects | none |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let causes = || catalogue::all().filter(|cause| !cause.is_admission());
    for cause in causes() {
        let has = |tried| if cause.tried.contains(&tried) { "yes" } else { "" };
        let lab =
            if cause.tried.contains(&TriedWith::Test) { "a test" } else { has(TriedWith::Lab) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {lab} | {} | {} | {} |",
            link(cause, "causes/"),
            cause.field.join(", "),
            has(TriedWith::RealKubelet),
            has(TriedWith::RealRuntime),
            has(TriedWith::ApiServer),
            has(TriedWith::Recording),
            has(TriedWith::Objects),
            if cause.tried.is_empty() { "none" } else { "" },
        );
    }
    let nothing_real = causes().filter(|cause| cause.tried.is_empty()).count();
    let _ = writeln!(
        table,
        "\nOf {} causes, {nothing_real} were tried with nothing real.",
        causes().count()
    );
    table
}

fn link(cause: &Cause, folder: &str) -> String {
    format!("[`{0}`]({folder}{0}.md)", cause.id)
}

fn tried(cause: &Cause) -> String {
    if cause.tried.is_empty() {
        return "nothing real yet: only with made-up events".into();
    }
    cause.tried.iter().map(|tried: &TriedWith| tried.words()).collect::<Vec<_>>().join(", ")
}

/// The page of one cause.
fn page(cause: &Cause) -> String {
    let mut page = format!(
        "<!-- written by `cargo xtask docs` from the catalogue of causes -->\n# {}\n\n**{}.**\n\n{}\n",
        cause.id,
        sentence(cause.title),
        cause.meaning
    );
    let _ = write!(page, "\nStage of the deletion: {}.\n", cause.stage.meaning());
    section(&mut page, "What confirms it", cause.confirmed_by.iter().map(confirmed));
    let log = cause.log.iter().map(|line| format!("{}: `{}`", line.component, line.text));
    section(&mut page, "In a log", log);
    if !cause.look_alikes.is_empty() {
        page.push_str(
            "\n## What it is confused with\n\n| cause | what holds here and not there |\n",
        );
        page.push_str("|---|---|\n");
    }
    for other in cause.look_alikes {
        let name = match catalogue::find(other.cause.as_str()) {
            Some(known) => link(known, ""),
            None => format!(
                "{} ({}; podstuck does not recognise it)",
                other.cause,
                catalogue::title(other.cause).unwrap_or_default()
            ),
        };
        let _ = writeln!(page, "| {name} | {} |", other.differs_by);
    }
    let ways = cause.ways_out.iter().map(|way| match way.risk {
        "" => way.action.to_owned(),
        risk => format!("{}. Risk: {risk}", way.action),
    });
    section(&mut page, "Remedies", ways);
    section(&mut page, "Versions", versions::of(cause.id).map(Versions::words));
    let _ = write!(page, "\nTried with: {}.\n", tried(cause));
    section(&mut page, "Met in the field", cause.field.iter().map(|place| (*place).to_owned()));
    section(&mut page, "Where it happens", cause.source.iter().map(|place| format!("`{place}`")));
    page
}

/// With a capital letter, and without emphasis.
fn sentence(title: &str) -> String {
    let title = title.replace("**", "");
    let mut letters = title.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().to_string() + letters.as_str())
}

fn section(page: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    for (number, line) in lines.enumerate() {
        if number == 0 {
            let _ = write!(page, "\n## {title}\n\n");
        }
        let _ = writeln!(page, "- {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = between_marks(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(between_marks(&new, "new\n").unwrap(), new, "a second time changes nothing");
        assert!(between_marks("a\nb\n", "new").is_none());
    }

    #[test]
    fn every_cause_is_in_a_row_of_three_columns() {
        let table = causes_table();
        for cause in catalogue::all() {
            let name = format!("`{}`", cause.id);
            assert_eq!(table.matches(&name).count(), 1, "{name}");
        }
        assert!(table.lines().all(|line| line.matches('|').count() == 4), "{table}");
        let table = tried_table();
        let mut rows = table.lines().take_while(|line| !line.is_empty());
        assert!(rows.all(|line| line.matches('|').count() == 10), "{table}");
        let table = proof_table();
        assert!(table.lines().all(|line| line.matches('|').count() == 5), "{table}");
    }

    #[test]
    fn the_documents_say_what_the_catalogue_says() {
        check(&Workspace::locate().unwrap()).unwrap();
    }
}
