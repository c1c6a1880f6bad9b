"""Files of users and sites to the types of the model."""
