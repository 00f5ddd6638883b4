"""What an operator sees: numbers (`meters`, `looks`), traces (`spans`) and log lines (`logs`). Nothing here decides anything."""
