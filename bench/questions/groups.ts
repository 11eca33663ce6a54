/** Questions about sums, averages and groups. */

import { october } from "./counts.ts";
import { $, aggregate, asc, desc, inner, type Questions, select, term } from "./question.ts";
import { byId, type Shop } from "./shop.ts";
import { byKey, largestFirst, sum, tally } from "./tally.ts";

const cents = ({ total_cents }: { total_cents: number }) => total_cents;
const isPaid = ({ status }: { status: string }) => status === "paid";

function largest(shop: Shop, most: number): [number, number][] {
  return largestFirst(tally(shop.orders, ({ customer_id }) => customer_id, cents)).slice(0, most);
}

function ordersOf(shop: Shop): Map<number, number> {
  return tally(shop.orders, ({ customer_id }) => customer_id);
}

export const groups: Questions = {
  "orders-by-country": {
    question:
      "How many orders are there per country? Answer with a list of [country, orders], by country.",
    calls: [
      select("orders", {
        group_by: ["country"],
        aggregate: [aggregate("count", "n")],
        order_by: [asc("country")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => byKey(tally(shop.orders, ({ country }) => country)),
  },
  "month-by-country": {
    question:
      "How many orders per country were there in October 2025? Answer with a list of [country, orders], by country.",
    calls: [
      select("orders", {
        group_by: ["country"],
        aggregate: [aggregate("count", "n")],
        where: term("day", "BETWEEN", ["2025-10-01", "2025-10-31"]),
        order_by: [asc("country")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => byKey(tally(shop.orders.filter(october), ({ country }) => country)),
  },
  "paid-revenue": {
    question: "What is the sum of all paid orders, in cents? Answer with a number.",
    calls: [
      select("orders", {
        aggregate: [aggregate("sum", "cents", "total_cents")],
        where: term("status", "=", "paid"),
      }),
    ],
    answer: $("0.rows.0.cents"),
    expected: (shop) => sum(shop.orders.filter(isPaid), cents),
  },
  "average-order": {
    question:
      "What is the average total of orders from FR, in cents? Answer with a number, unrounded.",
    calls: [
      select("orders", {
        aggregate: [aggregate("avg", "average", "total_cents")],
        where: term("country", "=", "FR"),
      }),
    ],
    answer: $("0.rows.0.average"),
    expected: (shop) => {
      const french = shop.orders.filter(({ country }) => country === "FR");
      return sum(french, cents) / french.length;
    },
  },
  extremes: {
    question:
      "What are the smallest and the largest total of an order, in cents? Answer with [smallest, largest].",
    calls: [
      select("orders", {
        aggregate: [
          aggregate("min", "least", "total_cents"),
          aggregate("max", "most", "total_cents"),
        ],
      }),
    ],
    answer: [$("0.rows.0.least"), $("0.rows.0.most")],
    expected: (shop) => {
      const all = shop.orders.map(cents).sort((one, other) => one - other);
      return [all[0], all.at(-1)];
    },
  },
  "paid-figures": {
    question:
      "How many paid orders are there, what do they come to, and what on average, in cents? Answer with [orders, sum, average].",
    calls: [
      select("orders", {
        aggregate: [
          aggregate("count", "n"),
          aggregate("sum", "cents", "total_cents"),
          aggregate("avg", "average", "total_cents"),
        ],
        where: term("status", "=", "paid"),
      }),
    ],
    answer: [$("0.rows.0.n"), $("0.rows.0.cents"), $("0.rows.0.average")],
    expected: (shop) => {
      const orders = shop.orders.filter(isPaid).length;
      const paid = sum(shop.orders.filter(isPaid), cents);
      return [orders, paid, paid / orders];
    },
  },
  statuses: {
    question:
      "How many orders have each status? Answer with a list of [status, orders], the most frequent first, equally frequent ones by status.",
    calls: [
      select("orders", {
        group_by: ["status"],
        aggregate: [aggregate("count", "n")],
        order_by: [desc("n"), asc("status")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => largestFirst(tally(shop.orders, ({ status }) => status)),
  },
  "best-country": {
    question:
      "Which country has brought the largest revenue, and how much in cents? Answer with [country, cents].",
    calls: [
      select("orders", {
        group_by: ["country"],
        aggregate: [aggregate("sum", "cents", "total_cents")],
        order_by: [desc("cents")],
        limit: 1,
      }),
    ],
    answer: [$("0.rows.0.country"), $("0.rows.0.cents")],
    expected: (shop) => largestFirst(tally(shop.orders, ({ country }) => country, cents))[0],
  },
  regulars: {
    question:
      "Which customers have made 13 orders or more? Answer with a list of [customer id, orders], by id.",
    calls: [
      select("orders", {
        group_by: ["customer_id"],
        aggregate: [aggregate("count", "n")],
        having: term("n", ">=", 13),
        order_by: [asc("customer_id")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => byKey(ordersOf(shop)).filter(([, orders]) => orders >= 13),
  },
  "best-customers": {
    question:
      "Which five customers have ordered for the most? Answer with a list of [customer id, cents], the largest first, equal ones by id.",
    calls: [
      select("orders", {
        group_by: ["customer_id"],
        aggregate: [aggregate("sum", "cents", "total_cents")],
        order_by: [desc("cents"), asc("customer_id")],
        limit: 5,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => largest(shop, 5),
  },
  "best-emails": {
    question:
      "What are the emails of the three customers that have ordered for the most? Answer with a list of [email, cents], the largest first, equal ones by email.",
    calls: [
      select("orders", {
        join: inner("customers", "orders.customer_id = customers.id"),
        group_by: ["customers.email"],
        aggregate: [aggregate("sum", "cents", "total_cents")],
        order_by: [desc("cents"), asc("customers.email")],
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      largest(shop, 3).map(([id, spent]) => [byId(shop.customers, id).email, spent]),
  },
  "frequent-customers": {
    question:
      "Which customers have made the most orders? The first three as a list of [customer id, orders], the most first, equal ones by id.",
    calls: [
      select("orders", {
        group_by: ["customer_id"],
        aggregate: [aggregate("count", "n")],
        order_by: [desc("n"), asc("customer_id")],
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => largestFirst(ordersOf(shop)).slice(0, 3),
  },
  categories: {
    question: "Which categories of products are there? Answer with a sorted list.",
    calls: [
      select("products", {
        columns: ["category"],
        distinct: true,
        order_by: [asc("category")],
      }),
    ],
    answer: $("0.rows.*.category"),
    expected: (shop) => [...new Set(shop.products.map(({ category }) => category))].sort(),
  },
  cheapest: {
    question:
      "What does the cheapest product of each category cost, in cents? Answer with a list of [category, cents], by category.",
    calls: [
      select("products", {
        group_by: ["category"],
        aggregate: [aggregate("min", "cents", "price_cents")],
        order_by: [asc("category")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => {
      const least = new Map<string, number>();
      for (const { category, price_cents } of shop.products) {
        least.set(category, Math.min(least.get(category) ?? price_cents, price_cents));
      }
      return byKey(least);
    },
  },
  discontinued: {
    question: "In how many categories is at least one product discontinued? Answer with a number.",
    calls: [
      select("products", {
        aggregate: [{ fn: "count", column: "category", distinct: true, as: "n" }],
        where: term("discontinued", "=", true),
      }),
    ],
    answer: $("0.rows.0.n"),
    expected: (shop) => {
      const ended = shop.products.filter((product) => product.discontinued);
      return new Set(ended.map(({ category }) => category)).size;
    },
  },
  stars: {
    question:
      "How many reviews gave each number of stars? Answer with a list of [stars, reviews], the fewest stars first.",
    calls: [
      select("reviews", {
        group_by: ["stars"],
        aggregate: [aggregate("count", "n")],
        order_by: [asc("stars")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => byKey(tally(shop.reviews, (review) => review.stars)),
  },
  "stars-of-product": {
    question:
      "How many stars does product 5 have on average, and from how many reviews? Answer with [average, reviews].",
    calls: [
      select("reviews", {
        aggregate: [aggregate("avg", "average", "stars"), aggregate("count", "n")],
        where: term("product_id", "=", 5),
      }),
    ],
    answer: [$("0.rows.0.average"), $("0.rows.0.n")],
    expected: (shop) => {
      const found = shop.reviews.filter(({ product_id }) => product_id === 5);
      return [sum(found, (review) => review.stars) / found.length, found.length];
    },
  },
  "best-rated": {
    question:
      "Which products have at least 8 reviews and 4.3 stars or more on average? Give the first three by id as a list of [product id, average, reviews].",
    calls: [
      select("reviews", {
        group_by: ["product_id"],
        aggregate: [aggregate("avg", "average", "stars"), aggregate("count", "n")],
        having: { and: [term("n", ">=", 8), term("average", ">=", 4.3)] },
        order_by: [asc("product_id")],
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => {
      const reviews = tally(shop.reviews, ({ product_id }) => product_id);
      const given = tally(
        shop.reviews,
        ({ product_id }) => product_id,
        (review) => review.stars,
      );
      return byKey(reviews)
        .map(([id, number]) => [id, (given.get(id) ?? 0) / number, number] as const)
        .filter(([, average, number]) => number >= 8 && average >= 4.3)
        .slice(0, 3);
    },
  },
  "first-joined": {
    question: "On which day did the first customer join? Answer with the day as YYYY-MM-DD.",
    calls: [select("customers", { aggregate: [aggregate("min", "first", "joined")] })],
    answer: $("0.rows.0.first"),
    expected: (shop) => shop.customers.map(({ joined }) => joined).sort()[0],
  },
};
