"""Reading pages: what elements, words and numbers they have."""

import re
from html.parser import HTMLParser

WITHOUT_END = {"meta"}


class Page(HTMLParser):
    """A page taken apart; elements that are not closed where they should be are an error."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"twice the same attribute in {tag}: {names}"
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in WITHOUT_END:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"closed out of turn: {tag}"

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words).replace("\xa0", " ")

    def values(self, attribute):
        return [value for _, name, value in self.attributes if name == attribute]


def check(html):
    """That a page is whole, needs nothing else and runs nothing; returns it taken apart."""
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert page.tags.count("h1") == page.tags.count("main") == 1
    forbidden = {"script", "img", "iframe", "link", "object", "embed", "base"}
    assert not forbidden & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on") and name not in ("src", "srcset")
        is_link = name in ("href", "xlink:href")
        assert not is_link or value.startswith(("#", "data:image/png;base64,")), (tag, value)
    assert "@import" not in html and not re.search(r"url\([^#]", html)
    spaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'\s<]*", html)) <= spaces
    identities = page.values("id")
    assert len(identities) == len(set(identities))
    links = page.values("href") + page.values("xlink:href") + re.findall(r"url\((#.*?)\)", html)
    assert {value[1:] for value in links if value[0] == "#"} <= set(identities)
    drawn = [tag for tag, name, _ in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(drawn) == page.tags.count("svg")
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", " ".join(page.values("d")))
    assert len(html.encode()) < 2_000_000
    return page
