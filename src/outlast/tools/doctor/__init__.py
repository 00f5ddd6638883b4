"""What goes wrong in practice, looked for before it matters: facts are gathered once, each check is a function of them."""
