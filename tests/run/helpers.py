"""Functions that tests of the commands share."""

from html.parser import HTMLParser

import pytest

from pdno.cli import main

EVALUATE = "evaluate run --members 20"


def output(capsys, command: str) -> str:
    """Run a command that succeeds; return what it prints."""
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    answer = capsys.readouterr()
    assert stop.value.code == 0, answer.err
    return answer.out


class Reader(HTMLParser):
    """Collects tags, text, scripts, and sources that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.sources, self.text, self.scripts = [], [], "", 0

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.scripts += tag == "script" or any(name.startswith("on") for name, _ in attrs)
        self.sources += [v for name, v in attrs if name in ("src", "srcset", "href", "action", "data", "poster")]

    def handle_data(self, data) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader
