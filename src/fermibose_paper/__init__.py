"""The paper, measured again."""
