"""mkdocs' hooks: pages that are made from the code are added when the site is built."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    import sys

    sys.path.insert(0, str(Path(config.config_file_path).parent))
    from docs.site.pages import PAGES

    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files
