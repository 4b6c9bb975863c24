//! Words that our texts do not use, since the Kubernetes documentation and the man pages have others.

/// A process, a thread or a component is called what it is; what is repeated is done again; what is in use is in use; what
/// releases a pod is a remedy; a limit has its name and a quantity its number.
const OWN_WORDS: [&str; 15] = [
    "anew",
    "anybody",
    "as ever",
    "everybody",
    "holds on",
    "is none",
    "lets go",
    "nobody",
    "so many",
    "somebody",
    "someone",
    "told",
    "way out",
    "ways out",
    "whoever",
];

/// Which of these words a text uses, each with what stands before it. A name such as `somebody-elses-data` is no word.
pub fn own_words(text: &str) -> Vec<String> {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let is_part = |c: char| c.is_alphanumeric() || "-_/".contains(c);
    let uses = |word: &str| {
        joined
            .match_indices(word)
            .filter_map(|(at, _)| {
                let (before, rest) = joined.split_at(at);
                let after = &rest[word.len()..];
                let alone = !before.ends_with(is_part) && !after.starts_with(is_part);
                let from = before.char_indices().rev().nth(40).map_or(0, |(at, _)| at);
                alone.then(|| format!("{}{word}", &before[from..]))
            })
            .collect::<Vec<_>>()
    };
    OWN_WORDS.iter().flat_map(|word| uses(word)).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::own_words;

    /// The comments of all sources below a folder: blocks of lines, each with its place.
    fn comments(folder: &Path, take: &mut impl FnMut(String, String)) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "target" {
                comments(&path, take);
            } else if name.ends_with(".rs") && name != "own_words.rs" {
                let text = fs::read_to_string(&path).unwrap();
                let mut block = String::new();
                for (number, line) in text.lines().chain([""]).enumerate() {
                    match line.trim_start().strip_prefix("//") {
                        Some(comment) => {
                            block.push_str(comment.trim_start_matches(['/', '!']));
                            block.push('\n');
                        }
                        None if block.is_empty() => {}
                        None => {
                            take(format!("{}:{number}", path.display()), std::mem::take(&mut block))
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn comments_use_the_fields_words() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut wrong, mut read) = (Vec::new(), 0);
        for folder in ["podstuck-common", "podstuck-ebpf", "podstuck-user", "tests", "xtask"] {
            comments(&workspace.join(folder), &mut |place, comment| {
                read += 1;
                wrong
                    .extend(own_words(&comment).into_iter().map(|word| format!("{place}: {word}")));
            });
        }
        assert!(read > 5_000, "{read}");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_word_is_found_across_lines_and_a_name_is_none() {
        assert_eq!(own_words("it fails until he\nlets go."), ["it fails until he lets go"]);
        assert_eq!(own_words("Whoever asks"), ["whoever"]);
        assert!(own_words("/lab/somebody-elses-data was renewed").is_empty());
    }

    #[test]
    fn a_text_names_who_acts() {
        assert_eq!(own_words("the path is told apart by nobody").len(), 2);
    }
}
