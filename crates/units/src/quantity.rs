//! Numbers with a unit, as people write them, and what can be wrong with them.

/// Text that is not a quantity of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a number followed by one of the known units.
    #[error("{got:?} is not a {what}: expected a number and one of {units}, like {example}")]
    Unit {
        /// The text as given.
        got: String,
        /// Kind of quantity that was expected.
        what: &'static str,
        /// The units that are known.
        units: &'static str,
        /// A correct value.
        example: &'static str,
    },
    /// The number has more decimals than the quantity can hold.
    #[error("{got:?} is not a whole number of {unit}")]
    Fraction {
        /// The text as given.
        got: String,
        /// The smallest unit.
        unit: &'static str,
    },
    /// The number is too large.
    #[error("{got:?} is too large: at most {max} {unit}")]
    Range {
        /// The text as given.
        got: String,
        /// The largest value.
        max: u64,
        /// Its unit.
        unit: &'static str,
    },
}

/// The kind, the units, a correct value, and the smallest unit of a quantity: words for errors.
pub(crate) type Expected = (&'static str, &'static str, &'static str, &'static str);

/// Reads a number and its unit; `units` says how much each is worth.
pub(crate) fn parse(text: &str, units: &[(&str, u64)], expected: Expected) -> Result<u64, Error> {
    let (what, names, example, smallest) = expected;
    let unit_error = || Error::Unit { got: text.into(), what, units: names, example };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(unit_error)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || decimals.contains(['.', ','])
        || (number.contains('.') && decimals.is_empty())
    {
        return Err(unit_error());
    }
    let whole = without_separators(whole).ok_or_else(unit_error)?;
    let range = || Error::Range { got: text.into(), max: u64::MAX, unit: smallest };
    let whole = whole.parse::<u64>().map_err(|_| range())?.checked_mul(scale).ok_or_else(range)?;
    let part = fraction(decimals, scale)
        .ok_or_else(|| Error::Fraction { got: text.into(), unit: smallest })?;
    whole.checked_add(part).ok_or_else(range)
}

/// Returns the digits of a number such as `10,000`, if commas stand between thousands alone.
fn without_separators(whole: &str) -> Option<String> {
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let are_thousands =
        !whole.contains(',') || ((1..=3).contains(&first.len()) && groups.all(|g| g.len() == 3));
    are_thousands.then(|| whole.replace(',', ""))
}

/// Returns `0.decimals · scale`, if that is a whole number.
fn fraction(decimals: &str, scale: u64) -> Option<u64> {
    let mut left = u128::from(scale);
    let mut sum = 0u128;
    for digit in decimals.trim_end_matches('0').bytes() {
        if left % 10 != 0 {
            return None;
        }
        left /= 10;
        sum += u128::from(digit - b'0') * left;
    }
    u64::try_from(sum).ok()
}
