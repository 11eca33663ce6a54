/** Questions about days, weeks, months and durations. */
import { $, aggregate, asc, count, desc, inner, type Questions, select, term } from "./question.ts";
import { byId, type Order } from "./shop.ts";
import { byKey, largestFirst, sum, tally } from "./tally.ts";

const millisecondsOfHour = 3_600_000;
const millisecondsOfDay = 24 * millisecondsOfHour;

function hoursBetween(from: string, to: string): number {
  return (Date.parse(to) - Date.parse(from)) / millisecondsOfHour;
}

/** 1 is Monday. */
function weekday(day: string): number {
  return new Date(day).getUTCDay() || 7;
}

function monday(day: string): string {
  const then = Date.parse(day) - (weekday(day) - 1) * millisecondsOfDay;
  return new Date(then).toISOString().slice(0, 10);
}

const isLate = ({ shipped, due }: Order) => shipped !== null && shipped > due;

function waits(orders: readonly Order[]): [number, number][] {
  return orders.flatMap(({ id, placed, shipped }) =>
    shipped === null ? [] : [[id, hoursBetween(placed, shipped)]],
  );
}

const wait = (unit: string) => [{ as: "wait", fn: "diff", unit, of: ["shipped", "placed"] }];

export const times: Questions = {
  "orders-by-month": {
    question:
      "How many orders were there in each month of 2025? Answer with a list of [first day of the month as YYYY-MM-DD, orders], by month.",
    calls: [
      select("orders", {
        compute: [{ as: "month", fn: "trunc", unit: "month", of: ["day"] }],
        where: term("day", ">=", "2025-01-01"),
        group_by: ["month"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("month"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => {
      const recent = orders.filter(({ day }) => day >= "2025-01-01");
      return byKey(tally(recent, ({ day }) => `${day.slice(0, 7)}-01`));
    },
  },
  "weeks-of-october": {
    question:
      "How many orders were there in each of the weeks from 6 October to 2 November 2025? Answer with a list of [Monday as YYYY-MM-DD, orders], by week.",
    calls: [
      select("orders", {
        compute: [{ as: "week", fn: "trunc", unit: "week", of: ["day"] }],
        where: term("day", "BETWEEN", ["2025-10-06", "2025-11-02"]),
        group_by: ["week"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("week"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => {
      const meant = orders.filter(({ day }) => day >= "2025-10-06" && day <= "2025-11-02");
      return byKey(tally(meant, ({ day }) => monday(day)));
    },
  },
  weekdays: {
    question:
      "How many orders were placed on each weekday? Answer with a list of [weekday, orders], from 1 for Monday to 7 for Sunday.",
    calls: [
      select("orders", {
        compute: [{ as: "weekday", fn: "part", unit: "weekday", of: ["day"] }],
        group_by: ["weekday"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("weekday"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => byKey(tally(orders, ({ day }) => weekday(day))),
  },
  "busiest-hour": {
    question:
      "In which hour of the day (UTC) are the most orders placed, and how many? Answer with [hour, orders]; of equal ones the earlier hour.",
    calls: [
      select("orders", {
        compute: [{ as: "hour", fn: "part", unit: "hour", of: ["placed"] }],
        group_by: ["hour"],
        aggregate: [aggregate("count", "n")],
        order_by: [desc("n"), asc("hour")],
        limit: 1,
      }),
    ],
    answer: [$("0.rows.0.hour"), $("0.rows.0.n")],
    expected: ({ orders }) =>
      largestFirst(tally(orders, ({ placed }) => Number(placed.slice(11, 13))))[0],
  },
  "joined-by-year": {
    question:
      "How many customers joined in each year? Answer with a list of [year, customers], the most first.",
    calls: [
      count("customers", {
        compute: [{ as: "year", fn: "part", unit: "year", of: ["joined"] }],
        group_by: ["year"],
      }),
    ],
    answer: $("0.rows"),
    expected: ({ customers }) =>
      largestFirst(tally(customers, ({ joined }) => Number(joined.slice(0, 4)))),
  },
  "days-to-ship": {
    question:
      "How many days pass on average until an order is shipped? Answer with a number, unrounded.",
    calls: [
      select("orders", { compute: wait("day"), aggregate: [aggregate("avg", "days", "wait")] }),
    ],
    answer: $("0.rows.0.days"),
    expected: ({ orders }) => sum(waits(orders), ([, hours]) => hours / 24) / waits(orders).length,
  },
  "longest-waits": {
    question:
      "For which three orders did it take longest until they were shipped? Answer with a list of [id, hours], the longest first, equal ones by id.",
    calls: [
      select("orders", {
        compute: wait("hour"),
        columns: ["id", "wait"],
        order_by: [desc("wait"), asc("id")],
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => largestFirst(waits(orders)).slice(0, 3),
  },
  "late-by-country": {
    question:
      "How many orders of each country were shipped after they were due? Answer with a list of [country, orders], by country.",
    calls: [
      select("orders", {
        where: { column: "shipped", cmp: ">", other: "due" },
        group_by: ["country"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("country"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => byKey(tally(orders.filter(isLate), ({ country }) => country)),
  },
  "soon-after-joining": {
    question:
      "How many orders were made on the day on which their customer joined, or in the 30 days after it? Answer with a number.",
    calls: [
      count("orders", {
        join: inner("customers", "orders.customer_id = customers.id"),
        compute: [{ as: "age", fn: "diff", unit: "day", of: ["orders.day", "customers.joined"] }],
        where: term("age", "BETWEEN", [0, 30]),
      }),
    ],
    answer: $("0.count"),
    expected: ({ orders, customers }) =>
      orders.filter(({ day, customer_id }) => {
        const days = hoursBetween(byId(customers, customer_id).joined, day) / 24;
        return days >= 0 && days <= 30;
      }).length,
  },
};
