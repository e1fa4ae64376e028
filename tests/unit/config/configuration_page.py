"""The tables of docs/configuration.md."""

import json
import re
from collections.abc import Iterator, Sequence

from koff.config.kinds import Setting
from koff.config.settings import (
    CLUSTER_SETTINGS,
    NAMING_SETTINGS,
    OBJECTIVE_SETTINGS,
    OWNER_SETTINGS,
    PROCESS_SETTINGS,
)
from koff.config.webhook_settings import WEBHOOK_SETTINGS

SETTINGS = {
    "cluster": NAMING_SETTINGS + CLUSTER_SETTINGS,
    "objective": OBJECTIVE_SETTINGS,
    "owner": OWNER_SETTINGS,
    "process": PROCESS_SETTINGS,
    "webhook": WEBHOOK_SETTINGS,
}
TABLE = re.compile(r"(<!-- settings of an? (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RELOADED = re.compile(r"(?:`\w+`, )*`\w+`(?=[^|\n]*<!-- (at once|never) -->)")
"""The settings in the table of what a reload does, before their comment."""


def render_table(settings: Sequence[Setting]) -> Iterator[str]:
    """The lines of a table of settings."""
    yield "| key | values | default | what it does |"
    yield "| --- | --- | --- | --- |"
    for each in settings:
        values = "a list" if isinstance(each.kind, tuple) else each.kind.values
        values += "; one or a list" if each.many and values != "a list" else ""
        more = f" ([more]({each.see}))" if each.see else ""
        yield f"| `{each.name}` | {values} | {describe_default(each)} | {each.help}{more} |"


def describe_default(setting: Setting) -> str:
    """What holds where no value is given."""
    if setting.required:
        return "(needed)"
    if setting.default is None:
        return setting.default_text
    value = setting.default[0] if setting.many else setting.default
    return f"`{value if isinstance(value, str) else json.dumps(value).removesuffix('.0')}`"


def list_reloaded(reload: str) -> str:
    """The settings of a cluster and of the process with which a reload does that."""
    settings = CLUSTER_SETTINGS + PROCESS_SETTINGS
    return ", ".join(f"`{each.name}`" for each in settings if each.reload == reload)


def fill_page(page: str) -> str:
    """The page with the tables of the code."""
    page = TABLE.sub(lambda found: found[1] + "\n".join([*render_table(SETTINGS[found[2]]), found[3]]), page)
    return RELOADED.sub(lambda found: list_reloaded(found[1]), page)
