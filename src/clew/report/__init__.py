"""From a case to something a person wants to read. Nothing in here measures, weighs or writes evidence."""
