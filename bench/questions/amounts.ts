/** Questions about amounts, shares, buckets and parts of JSON. */
import {
  $,
  aggregate,
  asc,
  count,
  desc,
  either,
  inner,
  type Questions,
  select,
  term,
} from "./question.ts";
import { byId, type Shop } from "./shop.ts";
import { byKey, largestFirst, sum, tally } from "./tally.ts";

type Line = Shop["order_lines"][number];

const amountOf = ({ quantity, unit_cents }: Line) => quantity * unit_cents;
const amount = { as: "amount", fn: "mul", of: ["quantity", "unit_cents"] };

const isPaid = term("status", "=", "paid");
const isReturned = term("status", "=", "returned");

function totalOf({ orders }: Shop, status: string): Map<string, number> {
  return tally(
    orders,
    ({ country }) => country,
    (order) => (order.status === status ? order.total_cents : 0),
  );
}

const maker = (...path: (string | number)[]) => [
  { as: "part", fn: "json", of: ["details"], path: ["maker", ...path] },
];

export const amounts: Questions = {
  "before-discount": {
    question:
      "What would the lines of each category have come to without discounts (quantity times unit price), in cents? Answer with a list of [category, cents], by category.",
    calls: [
      select("order_lines", {
        join: inner("products", "order_lines.product_id = products.id"),
        compute: [amount],
        group_by: ["category"],
        aggregate: [aggregate("sum", "cents_before", "amount")],
        order_by: asc("category"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ order_lines, products }) =>
      byKey(tally(order_lines, ({ product_id }) => byId(products, product_id).category, amountOf)),
  },
  "dearest-line": {
    question:
      "Which line of which order has the largest amount without discounts (quantity times unit price)? Answer with [order id, line, cents]; of equal ones that of the smallest order and line.",
    calls: [
      select("order_lines", {
        compute: [amount],
        columns: ["order_id", "line", "amount"],
        order_by: [desc("amount"), asc("order_id"), asc("line")],
        limit: 1,
      }),
    ],
    answer: $("0.rows.0"),
    expected: ({ order_lines }) => {
      const most = order_lines.map(amountOf).reduce((one, other) => Math.max(one, other));
      const found = order_lines.find((line) => amountOf(line) === most);
      return [found?.order_id, found?.line, most];
    },
  },
  "average-discount": {
    question:
      "What is the average discount of a line in cents, if lines without one count as 0? Answer with a number, unrounded.",
    calls: [
      select("order_lines", {
        compute: [{ as: "discount", fn: "coalesce", of: ["discount_cents", { value: 0 }] }],
        aggregate: [aggregate("avg", "average", "discount")],
      }),
    ],
    answer: $("0.rows.0.average"),
    expected: ({ order_lines }) =>
      sum(order_lines, ({ discount_cents }) => discount_cents ?? 0) / order_lines.length,
  },
  "large-discounts": {
    question:
      "How many lines have a discount of more than a hundredth of their amount (quantity times unit price)? Answer with a number.",
    calls: [
      count("order_lines", {
        compute: [amount, { as: "hundredth", fn: "div", of: ["amount", { value: 100 }] }],
        where: { column: "discount_cents", cmp: ">", other: "hundredth" },
      }),
    ],
    answer: $("0.count"),
    expected: ({ order_lines }) =>
      order_lines.filter((line) => (line.discount_cents ?? 0) > amountOf(line) / 100).length,
  },
  "order-sizes": {
    question:
      "How many orders are small (under 500.00), medium (under 2000.00) and large? Answer with [large, medium, small].",
    calls: [
      select("orders", {
        compute: [
          either("big", term("total_cents", "<", 200_000), { value: "medium" }, { value: "large" }),
          either("size", term("total_cents", "<", 50_000), { value: "small" }, "big"),
        ],
        group_by: ["size"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("size"),
      }),
    ],
    answer: $("0.rows.*.n"),
    expected: ({ orders }) =>
      byKey(
        tally(orders, ({ total_cents: cents }) =>
          cents < 50_000 ? "small" : cents < 200_000 ? "medium" : "large",
        ),
      ).map(([, number]) => number),
  },
  remarks: {
    question:
      "How many reviews have each text? Answer with a list of [text, reviews], the most frequent first, with none as the text of those without.",
    calls: [
      count("reviews", {
        compute: [{ as: "remark", fn: "coalesce", of: ["text", { value: "none" }] }],
        group_by: ["remark"],
      }),
    ],
    answer: $("0.rows"),
    expected: ({ reviews }) => largestFirst(tally(reviews, ({ text }) => text ?? "none")),
  },
  "paid-share": {
    question:
      "Which share of the orders of each country is paid? Answer with a list of [country, share between 0 and 1, unrounded], by country.",
    calls: [
      select("orders", {
        compute: [either("is_paid", isPaid, { value: 1 }, { value: 0 })],
        group_by: ["country"],
        aggregate: [aggregate("avg", "share", "is_paid")],
        order_by: asc("country"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => {
      const paid = orders.filter(({ status }) => status === "paid");
      const paidBy = tally(paid, ({ country }) => country);
      const all = byKey(tally(orders, ({ country }) => country));
      return all.map(([country, number]) => [country, (paidBy.get(country) ?? 0) / number]);
    },
  },
  "paid-and-returned": {
    question:
      "What do the paid orders of each country come to, and what the returned ones, in cents? Answer with a list of [country, paid, returned], by country.",
    calls: [
      select("orders", {
        compute: [
          either("if_paid", isPaid, "total_cents", { value: 0 }),
          either("if_returned", isReturned, "total_cents", { value: 0 }),
        ],
        group_by: ["country"],
        aggregate: [
          aggregate("sum", "paid", "if_paid"),
          aggregate("sum", "returned", "if_returned"),
        ],
        order_by: asc("country"),
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => {
      const returned = totalOf(shop, "returned");
      const paid = byKey(totalOf(shop, "paid"));
      return paid.map(([country, cents]) => [country, cents, returned.get(country)]);
    },
  },
  "price-bands": {
    question:
      "How many products are there in each price class, if prices are rounded to the nearest hundred euros (half a hundred up)? Answer with the list of numbers, the lowest class first.",
    calls: [
      select("products", {
        compute: [
          { as: "hundreds", fn: "div", of: ["price_cents", { value: 10_000 }] },
          { as: "band", fn: "round", of: ["hundreds"] },
        ],
        group_by: ["band"],
        aggregate: [aggregate("count", "n")],
        order_by: asc("band"),
      }),
    ],
    answer: $("0.rows.*.n"),
    expected: ({ products }) =>
      byKey(tally(products, ({ price_cents }) => Math.round(price_cents / 10_000))).map(
        ([, number]) => number,
      ),
  },
  "makers-by-country": {
    question:
      "How many products have a maker in each country (see their details), if ten or more do? Answer with a list of [country, products], the most first.",
    calls: [
      count("products", {
        compute: maker("country"),
        group_by: ["part"],
        having: term("count", ">=", 10),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ products }) =>
      largestFirst(tally(products, ({ details }) => details.maker.country)).filter(
        ([, number]) => number >= 10,
      ),
  },
  "revenue-of-acme": {
    question: "What did the products of the maker Acme bring, in cents? Answer with a number.",
    calls: [
      select("order_lines", {
        join: inner("products", "order_lines.product_id = products.id"),
        compute: maker("name"),
        where: term("part", "=", "Acme"),
        aggregate: [aggregate("sum", "revenue", "cents")],
      }),
    ],
    answer: $("0.rows.0.revenue"),
    expected: ({ order_lines, products }) =>
      sum(
        order_lines.filter(
          ({ product_id }) => byId(products, product_id).details.maker.name === "Acme",
        ),
        ({ cents }) => cents,
      ),
  },
};
