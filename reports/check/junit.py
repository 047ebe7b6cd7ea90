"""`plan check` as JUnit XML: each job a test case, as Jenkins, GitLab and others read it.

Elements and attributes are those of the strictest reader, Jenkins' xunit plugin (types/model/xsd/junit-10.xsd): a test
case has neither file nor line there, so both stand in the text.
"""

import xml.etree.ElementTree as ET

from gpu_plan.planner.regression.result import CheckReport, Finding, JobResult
from gpu_plan.reports.check import words
from gpu_plan.reports.clean import one_line

_CLASS = "plan.check"


def render_check_junit(report: CheckReport) -> str:
    """An XML document in UTF-8 that ends with a newline: a failure for a regression or a broken budget, an error for
    a job that could not be computed.
    """
    counts = {
        "tests": str(len(report.jobs)),
        "failures": str(sum(job.status == "fail" for job in report.jobs)),
        "errors": str(sum(job.status == "error" for job in report.jobs)),
    }
    root = ET.Element("testsuites", {"name": "plan check", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "plan check", **counts, "skipped": "0"})
    properties = ET.SubElement(suite, "properties")
    for name, version in report.versions.items():
        ET.SubElement(properties, "property", {"name": one_line(name), "value": one_line(version)})
    for job in report.jobs:
        _case(suite, job)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, job: JobResult) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": _CLASS, "name": one_line(job.name), "time": "0"})
    errors = [finding for finding in job.findings if finding.level == "error"]
    if job.status in ("fail", "error"):
        worst = one_line(errors[0].message) if errors else "the job fails"
        kind = errors[0].kind if errors else job.status
        found = ET.SubElement(case, "failure" if job.status == "fail" else "error", {"message": worst, "type": kind})
        found.text = "\n".join(_line(finding) for finding in job.findings)
    ET.SubElement(case, "system-out").text = "\n".join(_output(job))


def _output(job: JobResult) -> list[str]:
    lines = [one_line(f"{words.job_place(job)}: {job.job}" if job.job else words.job_place(job))]
    for figure in job.figures:
        if figure.judged or words.is_category(figure):
            before = "" if figure.baseline is None else f", baseline {words.value(figure, figure.baseline)}"
            lines.append(f"{one_line(figure.label)}: {words.value(figure, figure.current)}{before}")
    if job.status not in ("fail", "error"):
        lines += [_line(finding) for finding in job.findings]
    return lines


def _line(finding: Finding) -> str:
    place = words.place(finding)
    return one_line(f"{place}: {finding.level}: {finding.message}" if place else f"{finding.level}: {finding.message}")
