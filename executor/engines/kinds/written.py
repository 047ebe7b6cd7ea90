"""Submit files in YAML: shell stands in them as the lines that it is. Pure."""


def as_yaml(*documents: object) -> str:
    """One document, or several with `---` between them."""
    import yaml

    class Lines(yaml.SafeDumper):
        """Several lines of text as a literal block."""

    def text(dumper: yaml.SafeDumper, value: str) -> "yaml.ScalarNode":
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Lines.add_representer(str, text)
    whole: str = yaml.dump_all(
        documents, Dumper=Lines, sort_keys=False, default_flow_style=False, explicit_start=len(documents) > 1
    )
    return whole
