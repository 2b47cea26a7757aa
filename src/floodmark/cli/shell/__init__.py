"""What verbs share: options, output, signals, the workspace and its stores."""
