/** Questions about rows that have, or do not have, rows of another table; and of tables with themselves. */
import { $, aggregate, asc, count, desc, inner, type Questions, select, term } from "./question.ts";
import { byId, type Order, type Shop } from "./shop.ts";
import { largestFirst, tally } from "./tally.ts";

/** A Select of the customers who have bought something of a category. */
function buyersOfCategory(category: string): object {
  return {
    from: "orders",
    columns: ["customer_id"],
    join: [
      inner("order_lines", "order_lines.order_id = orders.id"),
      inner("products", "order_lines.product_id = products.id"),
    ],
    where: term("category", "=", category),
  };
}

function buyersOf({ orders, order_lines, products }: Shop, category: string): Set<number> {
  const lines = order_lines.filter((line) => byId(products, line.product_id).category === category);
  return new Set(lines.map(({ order_id }) => byId(orders, order_id).customer_id));
}

function buyersWhere({ orders }: Shop, isMeant: (order: Order) => boolean): Set<number> {
  return new Set(orders.filter(isMeant).map(({ customer_id }) => customer_id));
}

/** A Select of the customers who have used a coupon. */
function usersOf(coupon: string): object {
  return { from: "orders", columns: ["customer_id"], where: term("coupon", "=", coupon) };
}

function isOne(cmp: string, select: object): object {
  return { column: "id", cmp, select };
}

function exists(table: string, on: string, where?: object): object {
  return { exists: { table, on, ...(where === undefined ? {} : { where }) } };
}

const ofCustomer = "orders.customer_id = customers.id";

export const relations: Questions = {
  "books-and-toys": {
    question: "How many customers have bought both books and toys? Answer with a number.",
    calls: [
      count("customers", {
        where: {
          and: [isOne("IN", buyersOfCategory("books")), isOne("IN", buyersOfCategory("toys"))],
        },
      }),
    ],
    answer: $("0.count"),
    expected: (shop) => buyersOf(shop, "books").intersection(buyersOf(shop, "toys")).size,
  },
  "never-music": {
    question: "How many customers have ordered, but never any music? Answer with a number.",
    calls: [
      count("customers", {
        where: { and: [exists("orders", ofCustomer), isOne("NOT IN", buyersOfCategory("music"))] },
      }),
    ],
    answer: $("0.count"),
    expected: (shop) => buyersWhere(shop, () => true).difference(buyersOf(shop, "music")).size,
  },
  "two-coupons": {
    question:
      "Which customers have used both the coupon C03 and the coupon C05? Answer with a list of their ids, the smallest first.",
    calls: [
      select("customers", {
        columns: ["id"],
        where: { and: [isOne("IN", usersOf("C03")), isOne("IN", usersOf("C05"))] },
        order_by: asc("id"),
      }),
    ],
    answer: $("0.rows.*.id"),
    expected: (shop) => {
      const one = buyersWhere(shop, ({ coupon }) => coupon === "C03");
      const other = buyersWhere(shop, ({ coupon }) => coupon === "C05");
      return [...one.intersection(other)].sort((left, right) => left - right);
    },
  },
  "lost-customers": {
    question: "How many customers have ordered in 2024, but not in 2025? Answer with a number.",
    calls: [
      count("customers", {
        where: {
          and: [
            exists("orders", ofCustomer, term("day", "<", "2025-01-01")),
            { not: exists("orders", ofCustomer, term("day", ">=", "2025-01-01")) },
          ],
        },
      }),
    ],
    answer: $("0.count"),
    expected: (shop) =>
      buyersWhere(shop, ({ day }) => day < "2025").difference(
        buyersWhere(shop, ({ day }) => day >= "2025"),
      ).size,
  },
  "unknown-to-vips": {
    question: "How many products has no VIP reviewed? Answer with a number.",
    calls: [
      count("products", {
        where: isOne("NOT IN", {
          from: "reviews",
          columns: ["product_id"],
          join: inner("customers", "reviews.customer_id = customers.id"),
          where: term("vip", "=", true),
        }),
      }),
    ],
    answer: $("0.count"),
    expected: ({ products, reviews, customers }) => {
      const ofVips = reviews.filter(({ customer_id }) => byId(customers, customer_id).vip);
      return products.length - tally(ofVips, ({ product_id }) => product_id).size;
    },
  },
  "reviewed-by-buyers": {
    question:
      "How many reviews with 1 star are by customers who have bought the product? Answer with a number.",
    calls: [
      select("reviews", {
        join: [
          inner("orders", "orders.customer_id = reviews.customer_id"),
          inner("order_lines", "order_lines.order_id = orders.id"),
        ],
        where: {
          and: [
            term("stars", "=", 1),
            { column: "reviews.product_id", cmp: "=", other: "order_lines.product_id" },
          ],
        },
        aggregate: [{ ...aggregate("count", "n", "reviews.id"), distinct: true }],
      }),
    ],
    answer: $("0.rows.0.n"),
    expected: ({ reviews, orders, order_lines }) => {
      const bought = new Set(
        order_lines.map((line) => `${byId(orders, line.order_id).customer_id} ${line.product_id}`),
      );
      return reviews.filter(
        (one) => one.stars === 1 && bought.has(`${one.customer_id} ${one.product_id}`),
      ).length;
    },
  },
  "twice-a-day": {
    question:
      "How many customers have made two orders or more on the same day? Answer with a number.",
    calls: [
      select(
        { table: "orders", as: "one" },
        {
          join: inner("orders", "one.customer_id = other.customer_id", "other"),
          where: {
            and: [
              { column: "one.day", cmp: "=", other: "other.day" },
              { column: "one.id", cmp: "<", other: "other.id" },
            ],
          },
          aggregate: [{ ...aggregate("count", "n", "one.customer_id"), distinct: true }],
        },
      ),
    ],
    answer: $("0.rows.0.n"),
    expected: ({ orders }) => {
      const days = tally(orders, ({ customer_id, day }) => `${customer_id} ${day}`);
      const busy = [...days].filter(([, number]) => number > 1);
      return new Set(busy.map(([key]) => key.split(" ")[0])).size;
    },
  },
  "bought-together": {
    question:
      "Which two products are most often in the same order, and in how many orders? Answer with [smaller id, larger id, orders]; of equal ones the pair with the smallest ids.",
    calls: [
      select(
        { table: "order_lines", as: "one" },
        {
          join: inner("order_lines", "one.order_id = other.order_id", "other"),
          where: { column: "one.product_id", cmp: "<", other: "other.product_id" },
          group_by: ["one.product_id", "other.product_id"],
          aggregate: [{ ...aggregate("count", "n", "one.order_id"), distinct: true }],
          order_by: [desc("n"), asc("one.product_id"), asc("other.product_id")],
          limit: 1,
        },
      ),
    ],
    answer: $("0.rows.0"),
    expected: ({ order_lines }) => {
      const orders = Map.groupBy(order_lines, ({ order_id }) => order_id);
      const pairs = [...orders.values()].flatMap((lines) => {
        const ids = [...new Set(lines.map(({ product_id }) => product_id))];
        return ids.flatMap((one) =>
          ids.filter((other) => one < other).map((other) => one * 100_000 + other),
        );
      });
      const [pair = 0, number] = largestFirst(tally(pairs, (pair) => pair))[0] ?? [];
      return [Math.floor(pair / 100_000), pair % 100_000, number];
    },
  },
  referrers: {
    question:
      "Which three customers have referred the most others? Answer with a list of [id, name, number], the most first, equal ones by id.",
    calls: [
      select(
        { table: "customers", as: "one" },
        {
          join: inner("customers", "other.referred_by = one.id", "other"),
          group_by: ["one.id", "one.name"],
          aggregate: [aggregate("count", "n")],
          order_by: [desc("n"), asc("one.id")],
          limit: 3,
        },
      ),
    ],
    answer: $("0.rows"),
    expected: ({ customers }) => {
      const referred = customers.filter(({ referred_by }) => referred_by !== null);
      const most = largestFirst(tally(referred, ({ referred_by }) => referred_by ?? 0));
      return most.slice(0, 3).map(([id, number]) => [id, byId(customers, id).name, number]);
    },
  },
};
