"""`outlast bench`: what a store gives, on the machine and with the settings of whoever asks. It is a guest there: nothing of it stays."""
