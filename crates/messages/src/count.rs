use schemars::JsonSchema;
use serde::Serialize;

/// A whole number that is not negative: a count, a duration in ns, or a time in ns since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Count(#[schemars(range(max = 9_223_372_036_854_775_807_u64))] pub u64);

macro_rules! from {
    ($($number:ty)*) => {$(
        impl From<$number> for Count {
            fn from(number: $number) -> Self {
                Self(number as u64)
            }
        }
    )*};
}
from!(u16 u32 u64 usize);
