//! Counts of things in words.

/// Returns a count with its noun: `1 packet`, `2 packets`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "packet")).join(", "),
            "0 packets, 1 packet, 2 packets"
        );
    }
}
