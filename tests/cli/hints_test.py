"""`sluice hints`, and that the README shows the same table."""

import json
import pathlib
import unittest

from harness import PoolTest

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def readme_table():
    """The first table of the README's section on hints."""
    lines = README.read_text(encoding="utf-8").split("\n## Hints", 1)[1].split("\n## ", 1)[0].splitlines()
    return "".join(line + "\n" for line in lines if line.startswith("|"))


class Hints(PoolTest):
    def test_the_readme_has_the_table(self):
        self.assertEqual(readme_table(), self.ok(self.sluice("hints", "--markdown")).out,
                         "put what `sluice hints --markdown` prints into README.md")

    def test_json_and_text_have_every_hint(self):
        rows = json.loads(self.ok(self.sluice("hints", "--json")).out)
        names = [row["name"] for row in rows]
        self.assertIn("sluice_lock_mode", names)
        self.assertIn("cb_nodes", names)
        mode = rows[names.index("sluice_lock_mode")]
        self.assertIn("lockahead", mode["choices"])
        self.assertEqual(mode["aliases"][0], {"name": "cray_cb_write_lock_mode",
                                              "values": {"0": "standard", "1": "group", "2": "lockahead"}})
        text = self.ok(self.sluice("hints")).out
        for name in names:
            self.assertIn("\n" + name, "\n" + text)

    def test_one_form_at_a_time(self):
        self.fails(self.sluice("hints", "--json", "--markdown"), 2, "--markdown")

    def test_a_pools_hints_are_checked_when_its_service_starts(self):
        self.up()
        self.ok(self.sluice("down"))
        with open(self.pool / "pool.toml", "a", encoding="utf-8") as config:
            config.write('[hints]\n"*.h5" = { sluice_lock_mode = "grupp" }\n')
        self.fails(self.sluice("up"), 2, "pool.toml", "hints.\"*.h5\".sluice_lock_mode", "group")


if __name__ == "__main__":
    unittest.main()
