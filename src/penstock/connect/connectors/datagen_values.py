"""Realistic values for generated records: people, addresses, products.

Fields of one record about the same thing are consistent: an email address contains the name of its person, a
postcode and a phone number belong to the city, a price belongs to the product.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable
from typing import Any

_FIRST = (
    "Ada", "Aisha", "Amir", "Anna", "Anton", "Carlos", "Chen", "Clara", "David", "Elena", "Emil", "Emma",
    "Fatima", "Felix", "Grace", "Hana", "Hugo", "Ines", "Ivan", "Jack", "James", "Jan", "Julia", "Kofi",
    "Laura", "Leo", "Lina", "Lucas", "Maria", "Mateo", "Mia", "Mohammed", "Nina", "Noah", "Olga", "Omar",
    "Paul", "Priya", "Rosa", "Sofia",
)  # fmt: skip
_LAST = (
    "Adams", "Ahmed", "Becker", "Brown", "Chen", "Costa", "Dubois", "Evans", "Fischer", "Garcia", "Haas",
    "Hansen", "Ivanova", "Jensen", "Johnson", "Kaya", "Keller", "Khan", "Kim", "Klein", "Kowalski", "Lopez",
    "Martin", "Meyer", "Moreau", "Nguyen", "Novak", "Okafor", "Olsen", "Patel", "Peters", "Rossi", "Sato",
    "Schmidt", "Silva", "Smith", "Tanaka", "Taylor", "Weber", "Wilson",
)  # fmt: skip
# City, region, country and its code, the form of a postcode, the form of a phone number, streets.
_PLACES = (
    ("Berlin", "Berlin", "Germany", "DE", "10###", "+49 30 #######",
     ("Lindenstr.", "Hauptstr.", "Gartenweg")),
    ("Hamburg", "Hamburg", "Germany", "DE", "20###", "+49 40 #######", ("Hafenstr.", "Bergstr.", "Am Markt")),
    ("Munich", "Bavaria", "Germany", "DE", "80###", "+49 89 #######", ("Isarweg", "Schulstr.", "Ringstr.")),
    ("Vienna", "Vienna", "Austria", "AT", "1##0", "+43 1 #######", ("Ringstr.", "Mozartgasse", "Bergweg")),
    ("Zurich", "Zurich", "Switzerland", "CH", "80##", "+41 44 ### ## ##",
     ("Seestr.", "Bahnhofstr.", "Dorfweg")),
    ("Paris", "Ile-de-France", "France", "FR", "750##", "+33 1 ## ## ## ##", ("Rue Pasteur", "Rue du Parc")),
    ("Lyon", "Auvergne-Rhone-Alpes", "France", "FR", "6900#", "+33 4 ## ## ## ##",
     ("Rue de la Gare", "Quai Sud")),
    ("London", "England", "United Kingdom", "GB", "SW# #AB", "+44 20 #### ####",
     ("High Street", "Park Road")),
    ("Madrid", "Madrid", "Spain", "ES", "280##", "+34 91 ### ## ##", ("Calle Mayor", "Calle del Sol")),
    ("Rome", "Lazio", "Italy", "IT", "001##", "+39 06 ### ####", ("Via Roma", "Via Verdi", "Via Garibaldi")),
    ("Warsaw", "Mazovia", "Poland", "PL", "0#-###", "+48 22 ### ## ##", ("ul. Polna", "ul. Lipowa")),
    ("New York", "NY", "United States", "US", "100##", "+1 212 555 01##", ("Main Street", "5th Avenue")),
    ("Chicago", "IL", "United States", "US", "606##", "+1 312 555 01##", ("Lake Street", "Oak Avenue")),
    ("Toronto", "ON", "Canada", "CA", "M#B #C#", "+1 416 555 01##", ("King Street", "Queen Street")),
    ("Tokyo", "Tokyo", "Japan", "JP", "1##-00##", "+81 3 #### ####", ("Ginza", "Shibuya", "Ueno")),
)  # fmt: skip
# Product, category, the lowest and the highest price.
_PRODUCTS = (
    ("Desk lamp", "home", 19, 89), ("Office chair", "home", 79, 399), ("Kettle", "kitchen", 19, 69),
    ("Coffee grinder", "kitchen", 25, 149), ("Frying pan", "kitchen", 15, 99),
    ("Headphones", "electronics", 29, 349), ("Keyboard", "electronics", 19, 179),
    ("Monitor", "electronics", 99, 699), ("Novel", "books", 8, 25), ("Cookbook", "books", 15, 45),
    ("Running shoes", "sports", 49, 189), ("Yoga mat", "sports", 12, 79),
    ("Bicycle helmet", "sports", 25, 129), ("T-shirt", "clothing", 9, 39),
    ("Rain jacket", "clothing", 39, 249),
)  # fmt: skip
_COMPANIES = ("Trading", "Logistics", "Foods", "Software", "Consulting", "Partners")
_MAIL = ("example.com", "example.org", "example.net")


class Facts:
    """The facts of one record; drawn when a field first needs them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._people: dict[str, _Person] = {}

    def value(self, kind: str, of: str) -> Any:
        """Raises KeyError for an unknown kind. `of` names the person or thing."""
        make = KINDS[kind]
        person = self._people.get(of)
        if person is None:
            person = self._people[of] = _Person(self._chance)
        return make(person)


class _Person:
    """A person with an address and a product that they buy."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.first, self.last = chance.choice(_FIRST), chance.choice(_LAST)
        (
            self.city,
            self.region,
            self.country,
            self.country_code,
            postcode,
            phone,
            streets,
        ) = chance.choice(_PLACES)
        self.postcode, self.phone = _filled(postcode, chance), _filled(phone, chance)
        self.street = f"{chance.choice(streets)} {chance.randint(1, 199)}"
        self.email = f"{self.first}.{self.last}{chance.randint(1, 99)}@{chance.choice(_MAIL)}".lower()
        self.company = f"{self.last} {chance.choice(_COMPANIES)}"
        self.product, self.category, low, high = chance.choice(_PRODUCTS)
        self.price = round(chance.uniform(low, high), 2)


def _filled(form: str, chance: random.Random) -> str:
    return "".join(chance.choice(string.digits) if each == "#" else each for each in form)


KINDS: dict[str, Callable[[_Person], Any]] = {
    "first_name": lambda person: person.first,
    "last_name": lambda person: person.last,
    "name": lambda person: f"{person.first} {person.last}",
    "email": lambda person: person.email,
    "phone": lambda person: person.phone,
    "company": lambda person: person.company,
    "street": lambda person: person.street,
    "city": lambda person: person.city,
    "region": lambda person: person.region,
    "postcode": lambda person: person.postcode,
    "country": lambda person: person.country,
    "country_code": lambda person: person.country_code,
    "address": lambda person: f"{person.street}, {person.postcode} {person.city}, {person.country}",
    "product": lambda person: person.product,
    "category": lambda person: person.category,
    "price": lambda person: person.price,
    # A different one for each field.
    "uuid": lambda person: str(uuid.UUID(int=person.chance.getrandbits(128), version=4)),
    "ipv4": lambda person: ".".join(str(person.chance.randint(1, 254)) for _ in range(4)),
}
