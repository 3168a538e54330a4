use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{ColumnDescriptor, Type, TypePtr};

use crate::error::Error;

/// The type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// Signed, of 64 bits.
    Int64,
    /// Unsigned, of 64 bits.
    UInt64,
    /// A floating-point number of 64 bits.
    Double,
    /// Text in UTF-8.
    Text,
}

const KINDS: [Kind; 5] = [Kind::Bool, Kind::Int64, Kind::UInt64, Kind::Double, Kind::Text];

impl Kind {
    /// The name of the type, as Arrow has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::UInt64 => "uint64",
            Self::Double => "double",
            Self::Text => "string",
        }
    }

    /// Finds a type by its name.
    pub fn named(name: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn schema(self, name: &str, is_nullable: bool) -> Result<TypePtr, Error> {
        let repetition = if is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let (physical, logical) = match self {
            Self::Bool => (Physical::BOOLEAN, None),
            Self::Int64 => (Physical::INT64, None),
            Self::UInt64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Self::Double => (Physical::DOUBLE, None),
            Self::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical);
        Ok(field.build()?.into())
    }
}

/// The name of a column's type, whether it is one of ours or not.
pub(crate) fn type_name(column: &ColumnDescriptor) -> String {
    if column.max_rep_level() > 0 || column.max_def_level() > 1 {
        return "a nested type".into();
    }
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(of)), _) => {
            return format!("{}int{}", if of.is_signed { "" } else { "u" }, of.bit_width);
        }
        (Some(LogicalType::String), _) | (None, ConvertedType::UTF8) => {
            return Kind::Text.name().into();
        }
        (None, ConvertedType::UINT_64) => return Kind::UInt64.name().into(),
        (None, ConvertedType::NONE | ConvertedType::INT_64) => {}
        (Some(other), _) => return format!("{other:?}").to_lowercase(),
        (None, other) => return other.to_string().to_lowercase(),
    }
    match column.physical_type() {
        Physical::BOOLEAN => "bool",
        Physical::INT32 => "int32",
        Physical::INT64 => "int64",
        Physical::INT96 => "int96",
        Physical::FLOAT => "float",
        Physical::DOUBLE => "double",
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => "binary",
    }
    .into()
}
