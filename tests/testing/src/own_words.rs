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
    use super::own_words;

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
