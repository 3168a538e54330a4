//! The kernel's description of an event: its number, and where its fields are.

use crate::error::Error;

/// The place of a field within an event's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of its first byte.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// An event's number, name and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The event's number, with which its bytes begin.
    pub id: u16,
    /// Its name, without the group's.
    pub name: String,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Reads the text of a `format` file.
    ///
    /// # Errors
    /// [`Error::Format`] when it has no name or number, or a field without its place.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let name = value("name:").unwrap_or("an event").to_owned();
        let wrong = |what: &str| Error::Format { event: name.clone(), what: what.to_owned() };
        let id = value("ID:").and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| wrong("expected a line `ID: NUMBER`"))?;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("field:")) {
            let (field, place) = field(line)
                .ok_or_else(|| wrong(&format!("expected offset and size in {line:?}")))?;
            fields.push((field, place));
        }
        Ok(Self { id, name, fields })
    }

    /// Returns where a field is.
    ///
    /// # Errors
    /// [`Error::Format`] when the event has none of that name.
    pub fn field(&self, name: &str) -> Result<Field, Error> {
        self.optional(name).ok_or_else(|| Error::Format {
            event: self.name.clone(),
            what: format!("expected a field {name}"),
        })
    }

    /// Returns where a field is that not every kernel has.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }
}

fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let name = declared.rsplit([' ', '*']).next()?.split('[').next()?.to_owned();
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => size = number.parse().ok(),
            _ => {}
        }
    }
    Some((name, Field { offset: offset?, size: size? }))
}

impl Field {
    /// Returns the field as a number, little endian; `None` beyond the end of `data`, or of another
    /// size than a number has.
    #[must_use]
    pub fn number(self, data: &[u8]) -> Option<u64> {
        let bytes = data.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut number = [0; 8];
        number.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }

    /// Returns the field as a signed number of 32 bits.
    #[must_use]
    pub fn signed(self, data: &[u8]) -> Option<i32> {
        self.number(data).map(|number| number as u32 as i32)
    }

    /// Returns the field as text: an array of characters, or (`__data_loc`) the place of one.
    #[must_use]
    pub fn text(self, data: &[u8]) -> Option<String> {
        let bytes = if self.size == 4 {
            self.located(data)?
        } else {
            data.get(self.offset..self.offset.checked_add(self.size)?)?
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Returns the bytes that a `__data_loc` field leads to.
    #[must_use]
    pub fn located(self, data: &[u8]) -> Option<&[u8]> {
        let place = self.number(data)?;
        let (offset, len) = (place as usize & 0xffff, (place >> 16) as usize & 0xffff);
        data.get(offset..offset.checked_add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IRQ: &str = "name: irq_handler_entry
ID: 225
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;
\tfield:char prev_comm[16];\toffset:16;\tsize:16;\tsigned:0;
\tfield:void * callsite;\toffset:32;\tsize:8;\tsigned:0;

print fmt: \"irq=%d name=%s\", REC->irq, __get_str(name)
";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(IRQ).unwrap();
        assert_eq!((format.id, format.name.as_str()), (225, "irq_handler_entry"));
        assert_eq!(format.field("irq").unwrap(), Field { offset: 8, size: 4 });
        assert_eq!(format.field("prev_comm").unwrap().size, 16);
        assert_eq!(format.field("callsite").unwrap().offset, 32);
        let missing = format.field("vec").unwrap_err().to_string();
        assert_eq!(missing, "format of irq_handler_entry: expected a field vec");
    }

    #[test]
    fn values_come_out_of_bytes() {
        let format = Format::parse(IRQ).unwrap();
        let mut data = [0; 48];
        data[8..12].copy_from_slice(&(-1_i32).to_le_bytes());
        data[12..16].copy_from_slice(&(5_u32 << 16 | 40).to_le_bytes());
        data[40..45].copy_from_slice(b"eth0\0");
        data[16..20].copy_from_slice(b"init");
        assert_eq!(format.field("irq").unwrap().signed(&data), Some(-1));
        assert_eq!(format.field("name").unwrap().text(&data).as_deref(), Some("eth0"));
        assert_eq!(format.field("prev_comm").unwrap().text(&data).as_deref(), Some("init"));
        assert_eq!(format.field("name").unwrap().text(&data[..42]), None);
    }

    #[test]
    fn what_is_no_format_is_refused() {
        assert!(Format::parse("").unwrap_err().to_string().contains("ID"));
        let text = "name: x\nID: 1\n\tfield:int y;\n";
        assert!(Format::parse(text).unwrap_err().to_string().contains("offset and size"));
    }
}
