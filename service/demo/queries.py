"""The demo's queries: effects of the weather on departures, over windows of 10 minutes to a day.

All queries but the last three are inner joins on the airport. They therefore form one family and share one
chain of slices per stream. ``weather [RANGE 3 HOURS]`` pairs a flight with observations of the 3 hours before
it; ``flights [RANGE 30 MINUTES]`` pairs an observation with flights of the 30 minutes before it.

The next two queries find rows without a partner, each in its own family: flights without an observation that
would excuse their delay, and flights whose aircraft does not take off again. The data has only departures
from New York, so an aircraft that takes off there again must have returned.

The last query joins three streams on two keys: weather by the airport, aircraft by their number. The results
of this query come one batch later than the results of the other queries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query and its purpose.

    Attributes:
        name: Query name.
        question: Question that the query answers.
        cql: Text of the query.
    """

    name: str
    question: str
    cql: str


QUERIES = (
    DemoQuery(
        "gusts_on_the_runway",
        "Departures within 10 minutes of gusts above 35 mph",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.wind_gust
FROM flights [RANGE 10 MINUTES] f, weather [RANGE 10 MINUTES] w
WHERE f.origin = w.origin AND w.wind_gust > 35""",
    ),
    DemoQuery(
        "fog_delays",
        "Departures delayed by a quarter of an hour, with less than a mile of visibility 20 minutes around",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.dep_delay, w.visib
FROM flights [RANGE 20 MINUTES] f, weather [RANGE 20 MINUTES] w
WHERE f.origin = w.origin AND w.visib < 1 AND f.dep_delay >= 15""",
    ),
    DemoQuery(
        "crosswind_at_newark",
        "Newark departures held up while strong wind crosses its parallel runways",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.dep_delay, w.wind_dir, w.wind_speed
FROM flights [RANGE 30 MINUTES] f, weather [RANGE 30 MINUTES] w
WHERE f.origin = w.origin AND f.origin = 'EWR' AND f.dep_delay > 20
  AND w.wind_speed > 20 AND w.wind_dir BETWEEN 260 AND 320""",
    ),
    DemoQuery(
        "regional_jets_in_wind",
        "Small aircraft that left late within the hour of sustained wind above 25 mph",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.tailnum, f.origin, f.dep_delay, w.wind_speed
FROM flights [RANGE 15 MINUTES] f, weather [RANGE 1 HOUR] w
WHERE f.origin = w.origin AND f.carrier IN ('EV', 'MQ', '9E') AND f.dep_delay > 0 AND w.wind_speed > 25""",
    ),
    DemoQuery(
        "rain_delays",
        "Departures half an hour late or more within an hour of heavy rain",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.precip
FROM flights [RANGE 30 MINUTES] f, weather [RANGE 1 HOUR] w
WHERE f.origin = w.origin AND w.precip > 0.1 AND f.dep_delay >= 30""",
    ),
    DemoQuery(
        "jetblue_low_visibility",
        "JetBlue departures up to 90 minutes after visibility below 3 miles",
        """SELECT f.ts AS departure, f.flight, f.origin, f.dest, f.dep_delay, w.ts AS observed, w.visib
FROM flights [RANGE 10 MINUTES] f, weather [RANGE 90 MINUTES] w
WHERE f.origin = w.origin AND f.carrier = 'B6' AND w.visib < 3""",
    ),
    DemoQuery(
        "just_escaped",
        "Flights that left on time in the two hours before gusts above 45 mph",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, w.ts AS observed, w.wind_gust
FROM flights [RANGE 2 HOURS] f, weather [RANGE 10 MINUTES] w
WHERE f.origin = w.origin AND w.wind_gust > 45 AND f.dep_delay <= 0""",
    ),
    DemoQuery(
        "worse_than_the_fog",
        "Delays that grow with the fog: every mile of visibility below 6 excuses ten minutes",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.visib,
       f.dep_delay - 10 * (6 - w.visib) AS unexplained
FROM flights [RANGE 20 MINUTES] f, weather [RANGE 2 HOURS] w
WHERE f.origin = w.origin AND w.visib < 6 AND f.dep_delay > 60 AND f.dep_delay > 10 * (6 - w.visib)""",
    ),
    DemoQuery(
        "snow_and_ice",
        "Departures an hour late within three hours of precipitation at freezing temperatures",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.temp, w.precip
FROM flights [RANGE 30 MINUTES] f, weather [RANGE 3 HOURS] w
WHERE f.origin = w.origin AND w.temp <= 32 AND w.precip > 0 AND f.dep_delay >= 60""",
    ),
    DemoQuery(
        "summer_heat",
        "Late arrivals that took off within four hours of 95 degrees Fahrenheit",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.arr_delay, w.temp, w.dewp
FROM flights [RANGE 10 MINUTES] f, weather [RANGE 4 HOURS] w
WHERE f.origin = w.origin AND w.temp >= 95 AND f.arr_delay > 45""",
    ),
    DemoQuery(
        "cancelled_by_storm",
        "Cancelled flights with gusts above 30 mph in the six hours before, or the hour after",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, w.ts AS observed, w.wind_gust
FROM flights [RANGE 1 HOUR] f, weather [RANGE 6 HOURS] w
WHERE f.origin = w.origin AND f.dep_time IS NULL AND w.wind_gust > 30""",
    ),
    DemoQuery(
        "long_haul_in_the_cold",
        "Flights beyond 2,000 miles that left late within eight hours of damp frost",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.distance, f.dep_delay,
       w.temp, w.humid
FROM flights [RANGE 10 MINUTES] f, weather [RANGE 8 HOURS] w
WHERE f.origin = w.origin AND f.distance > 2000 AND f.dep_delay > 30 AND w.temp < 28 AND w.humid > 75""",
    ),
    DemoQuery(
        "deep_low",
        "Departures three hours late within twelve hours of a pressure below 1000 mbar",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.ts AS observed, w.pressure
FROM flights [RANGE 1 HOUR] f, weather [RANGE 12 HOURS] w
WHERE f.origin = w.origin AND w.pressure < 1000 AND f.dep_delay > 180""",
    ),
    DemoQuery(
        "made_up_in_the_air",
        "Departures half an hour late that arrived on time, and the wind of the twelve hours around them",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.dest, f.dep_delay, f.arr_delay,
       w.wind_dir, w.wind_speed
FROM flights [RANGE 12 HOURS] f, weather [RANGE 12 HOURS] w
WHERE f.origin = w.origin AND f.dep_delay >= 30 AND f.arr_delay <= 0 AND w.wind_speed >= 15""",
    ),
    DemoQuery(
        "unexplained_by_weather",
        "Departures two hours late with no wind, rain or haze in the three hours before, or the hour after",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.dep_delay
FROM flights [RANGE 1 HOUR] f LEFT ANTI JOIN weather [RANGE 3 HOURS] w
  ON f.origin = w.origin
  AND (w.wind_speed >= 15 OR w.wind_gust > 0 OR w.precip > 0 OR w.visib < 10)
WHERE f.dep_delay >= 120""",
    ),
    DemoQuery(
        "not_back_within_a_day",
        "Aircraft that left, and did not take off from New York again within a day",
        """SELECT f.ts AS departure, f.tailnum, f.carrier, f.flight, f.origin, f.dest
FROM flights [RANGE 1 DAY] f
WHERE f.dep_time IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM flights [NOW] g
  WHERE g.tailnum = f.tailnum AND g.ts > f.ts AND g.dep_time IS NOT NULL)""",
    ),
    DemoQuery(
        "old_aircraft_in_gusts",
        "Aircraft built before 1990 that left late within an hour of gusts above 30 mph "
        "(two keys, so one batch later)",
        """SELECT f.ts AS departure, f.carrier, f.flight, f.tailnum, f.origin, f.dep_delay, w.wind_gust,
       p.manufacturer, p.model, p.year AS built
FROM flights [NOW] f, weather [RANGE 1 HOUR] w, planes [RANGE 1 DAY] p
WHERE f.origin = w.origin AND f.tailnum = p.tailnum
  AND w.wind_gust > 30 AND f.dep_delay > 15 AND p.year < 1990""",
    ),
)
