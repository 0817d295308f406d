"""Forms made from the Structs that the API validates with."""
