"""Raw tables into binary features: schemas, sources, and how a schema is proposed and applied."""
