"""What a page consists of, by the standard library's parser."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "path", "hr", "input"}


class Outline(HTMLParser):
    """Collects what a page consists of, and insists that every element is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]
