"""Follow what runs publish, for viewers in this process."""
