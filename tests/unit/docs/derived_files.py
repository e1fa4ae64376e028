"""The pages and files that follow from the code. `python -m tests.unit.docs.derived_files` writes them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.unit.cli import output_page, sample_pages
from tests.unit.config import configuration_page
from tests.unit.deploy import chart_readme, chart_schema, rules_file
from tests.unit.serve.api import api_page
from tests.unit.serve.metrics import metrics_page

ROOT = Path(__file__).parents[3]
FILES: dict[str, Callable[[str], str]] = {
    **{name: partial(sample_pages.fill_page, name) for name in sample_pages.SAMPLES},
    "docs/api.md": api_page.fill_page,
    "docs/configuration.md": configuration_page.fill_page,
    "docs/metrics.md": metrics_page.fill_page,
    "docs/output.md": output_page.fill_page,
    "deploy/helm/koff/README.md": lambda _: chart_readme.build_readme(),
    "deploy/helm/koff/values.schema.json": chart_schema.fill_schema,
    "deploy/helm/koff/files/koff-rules.yml": lambda _: rules_file.TEMPLATE.read_text(),
    "deploy/prometheus/koff-rules.yml": lambda _: rules_file.build_rules(),
}
"""What each is to be, by what it is."""

if __name__ == "__main__":
    for name, fill in FILES.items():
        (ROOT / name).write_text(fill((ROOT / name).read_text()))
