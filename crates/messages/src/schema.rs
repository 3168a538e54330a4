use crate::counts::ProgramCounts;
use crate::message::Message;
use schemars::generate::SchemaSettings;

/// The JSON Schema of a line, as text: what `schema.json` holds.
pub fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    // Part of a message, and by itself of what `run.json` keeps.
    generator.subschema_for::<ProgramCounts>();
    let schema = generator.into_root_schema_for::<Message>();
    serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_file_is_what_the_types_say() {
        let file = include_str!("../schema.json");
        assert!(file == super::schema(), "`make messages` renews schema.json");
    }
}
