"""The paper's tables and figure, each a function and a command."""
