"""Findings for machines: SARIF for code hosts, JUnit for test reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from bk_jax.hlo.context import Finding
from bk_jax.hlo.lint import DESCRIPTIONS
from bk_jax.hlo.model import Module

Findings = Sequence[tuple[Module, Sequence[Finding]]]


def sarif(found: Findings) -> dict[str, Any]:
    """A SARIF 2.1.0 log."""
    rules = [{"id": name, "shortDescription": {"text": d}} for name, d in DESCRIPTIONS.items()]
    results = [_result(module, finding) for module, findings in found for finding in findings]
    driver = {"name": "bk-hlo", "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(module: Module, finding: Finding) -> dict[str, Any]:
    where = ".".join(filter(None, [module.name, finding.instruction]))
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": where}]}
    file, _, line = finding.source.rpartition(":")
    if file and line.isdigit() and int(line) > 0:
        place = {"artifactLocation": {"uri": file}, "region": {"startLine": int(line)}}
        location["physicalLocation"] = place
    return {
        "ruleId": finding.rule,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [location],
    }


def junit(found: Findings) -> str:
    """One test case per module and rule; notes do not fail it."""
    suites = ElementTree.Element("testsuites")
    for module, findings in found:
        failing = [finding for finding in findings if finding.level != "note"]
        failed = {finding.rule for finding in failing}
        counts = {"tests": str(len(DESCRIPTIONS)), "failures": str(len(failed))}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": module.name, **counts})
        for rule in DESCRIPTIONS:
            case = ElementTree.SubElement(suite, "testcase", classname=module.name, name=rule)
            messages = [finding.message for finding in failing if finding.rule == rule]
            if messages:
                failure = ElementTree.SubElement(case, "failure", message=messages[0])
                failure.text = "\n".join(messages)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
