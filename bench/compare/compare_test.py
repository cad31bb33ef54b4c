"""The statistics and the page of compare; the programs it runs have tests of their own."""

import html.parser
import unittest

import compare


def result(ratios, floor=1.0):
    return {"case": "a & b", "ranks": 2, "access": "write", "ours_mib_per_s": ratios, "theirs_mib_per_s": [1.0] * len(ratios),
            "their_setting": "enable", "ratios": ratios, "ratio": sorted(ratios)[len(ratios) // 2],
            "interval": compare.median_interval(ratios), "floor": floor}


class Statistics(unittest.TestCase):
    def test_the_interval_is_the_narrowest_that_is_sure_enough(self):
        # Order statistics: outside of all n values lies the median with 2 / 2^n.
        self.assertIsNone(compare.median_interval([1, 2, 3, 4, 5]))
        self.assertEqual(compare.median_interval([3, 1, 2, 6, 5, 4]), (1, 6))
        self.assertEqual(compare.median_interval(range(1, 8)), (1, 7))
        self.assertEqual(compare.median_interval(range(1, 10)), (2, 8))

    def test_no_winner_is_named_when_the_interval_spans_1(self):
        self.assertEqual(compare.verdict(result([0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])), "no winner")
        self.assertEqual(compare.verdict(result([1.1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])), "faster")
        self.assertEqual(compare.verdict(result([0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])), "slower")
        self.assertEqual(compare.verdict(result([2.0, 3.0])), "too few rounds to tell")

    def test_a_missed_floor_is_said(self):
        self.assertIn("MISSED", compare.line_of(result([1.0] * 7, floor=2.0), 100))
        self.assertIn("holds", compare.line_of(result([2.0] * 7, floor=2.0), 100))

    def test_the_page_stands_alone_and_escapes_what_it_shows(self):
        page = compare.page([result([1.0] * 7)], {"cpu": "<x>"}, 100)
        html.parser.HTMLParser().feed(page)
        self.assertIn("a &amp; b", page)
        self.assertIn("&lt;x&gt;", page)
        self.assertNotIn("src=", page)
        self.assertNotIn("href=", page)

    def test_every_case_has_floors_and_settings(self):
        for case in compare.mpiio_cases(quick=True) + compare.lock_cases(quick=True):
            self.assertTrue(case.floors and case.settings, case.name)


if __name__ == "__main__":
    unittest.main()
