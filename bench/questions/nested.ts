/** Questions about groups of groups, and about rows with the rows that belong to them. */
import { $, aggregate, asc, desc, inner, type Questions, select, term } from "./question.ts";
import { byId, type Order, type Shop } from "./shop.ts";
import { byKey, largestFirst, sum, tally } from "./tally.ts";

function grouped(select: object): object {
  return { select, as: "t" };
}

const revenueByMonth = {
  from: "orders",
  compute: [{ as: "month", fn: "trunc", unit: "month", of: ["day"] }],
  group_by: ["month"],
  aggregate: [aggregate("sum", "cents", "total_cents")],
};

const sumsByCategory = {
  from: "order_lines",
  join: inner("products", "order_lines.product_id = products.id"),
  group_by: ["category"],
  aggregate: [aggregate("sum", "revenue", "cents"), aggregate("sum", "pieces", "quantity")],
};

const bestSeller = {
  from: "order_lines",
  group_by: ["product_id"],
  aggregate: [aggregate("sum", "pieces", "quantity")],
  order_by: [desc("pieces"), asc("product_id")],
  limit: 1,
};

const newestFirst = [desc("day"), desc("id")];

function newestOrders({ orders }: Shop, customerId: number): Order[] {
  const own = orders.filter(({ customer_id }) => customer_id === customerId);
  return own.sort((one, other) =>
    one.day < other.day ? 1 : other.day < one.day ? -1 : other.id - one.id,
  );
}

function linesOf({ order_lines }: Shop, { id }: Order) {
  return order_lines.filter(({ order_id }) => order_id === id);
}

export const nested: Questions = {
  "best-seller-name": {
    question:
      "What is the name of the product of which the most pieces were sold (of equal ones that with the smaller id)?",
    calls: [
      select(grouped(bestSeller), {
        columns: ["name"],
        join: inner("products", "t.product_id = products.id"),
      }),
    ],
    answer: $("0.rows.0.name"),
    expected: ({ order_lines, products }) => {
      const pieces = tally(
        order_lines,
        ({ product_id }) => product_id,
        ({ quantity }) => quantity,
      );
      return byId(products, largestFirst(pieces)[0]?.[0] ?? 0).name;
    },
  },
  "customers-by-orders": {
    question:
      "How many customers have made one order, two orders, and so on? Answer with a list of [orders, customers], the fewest orders first.",
    calls: [
      select(
        grouped({
          from: "orders",
          group_by: ["customer_id"],
          aggregate: [aggregate("count", "orders")],
        }),
        { group_by: ["orders"], aggregate: [aggregate("count", "n")], order_by: asc("orders") },
      ),
    ],
    answer: $("0.rows"),
    expected: ({ orders }) => {
      const numbers = [...tally(orders, ({ customer_id }) => customer_id).values()];
      return byKey(tally(numbers, (number) => number));
    },
  },
  "average-month": {
    question:
      "What do the orders of a month come to on average, in cents? Answer with a number, unrounded.",
    calls: [select(grouped(revenueByMonth), { aggregate: [aggregate("avg", "average", "cents")] })],
    answer: $("0.rows.0.average"),
    expected: ({ orders }) =>
      sum(orders, ({ total_cents }) => total_cents) /
      tally(orders, ({ day }) => day.slice(0, 7)).size,
  },
  "price-of-a-piece": {
    question:
      "What does a piece cost on average in each category, in cents (the sum of its lines' cents, divided by their pieces)? Answer with a list of [category, cents], the dearest first, unrounded.",
    calls: [
      select(grouped(sumsByCategory), {
        compute: [{ as: "price", fn: "div", of: ["revenue", "pieces"] }],
        columns: ["category", "price"],
        order_by: desc("price"),
      }),
    ],
    answer: $("0.rows"),
    expected: ({ order_lines, products }) => {
      const lines = Map.groupBy(order_lines, (line) => byId(products, line.product_id).category);
      const prices = [...lines].map(([category, own]): [string, number] => [
        category,
        sum(own, ({ cents }) => cents) / sum(own, ({ quantity }) => quantity),
      ]);
      return largestFirst(prices);
    },
  },
  "orders-with-lines": {
    question:
      "What are the three newest orders of customer 7 (by day, of one day those with the largest ids first), and what do they consist of? Answer with a list of [id, list of [product id, quantity]], the lines in their order.",
    calls: [
      select("orders", {
        columns: ["id"],
        include: [
          {
            as: "lines",
            table: "order_lines",
            on: "order_lines.order_id = orders.id",
            columns: ["product_id", "quantity"],
            order_by: asc("line"),
          },
        ],
        where: term("customer_id", "=", 7),
        order_by: newestFirst,
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      newestOrders(shop, 7)
        .slice(0, 3)
        .map((order) => [
          order.id,
          linesOf(shop, order).map(({ product_id, quantity }) => [product_id, quantity]),
        ]),
  },
  "last-orders": {
    question:
      "Which was the newest order of each of the first five customers (by day, of one day that with the largest id)? Answer with a list of [customer id, [order id, day]], by customer, with null for one who has not ordered.",
    calls: [
      select("customers", {
        columns: ["id"],
        include: [
          {
            as: "last",
            table: "orders",
            on: "orders.customer_id = customers.id",
            columns: ["id", "day"],
            order_by: newestFirst,
            one: true,
          },
        ],
        order_by: asc("id"),
        limit: 5,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      shop.customers.slice(0, 5).map(({ id }) => {
        const [last] = newestOrders(shop, id);
        return [id, last === undefined ? null : [last.id, last.day]];
      }),
  },
  "dearest-with-reviews": {
    question:
      "Which two products are the dearest (of equal ones those with the smaller ids), and what are the ids of their first three reviews with 5 stars? Answer with [list of product ids, list of lists of review ids].",
    calls: [
      select("products", {
        columns: ["id"],
        include: [
          {
            as: "reviews",
            table: "reviews",
            on: "reviews.product_id = products.id",
            columns: ["id"],
            where: term("stars", "=", 5),
            order_by: asc("id"),
            limit: 3,
          },
        ],
        order_by: [desc("price_cents"), asc("id")],
        limit: 2,
      }),
    ],
    answer: [$("0.rows.*.id"), $("0.rows.*.reviews")],
    expected: ({ products, reviews }) => {
      const dearest = largestFirst(products.map(({ id, price_cents }) => [id, price_cents]));
      const ids = dearest.slice(0, 2).map(([id]) => id);
      const loved = ids.map((id) =>
        reviews.filter(({ product_id, stars }) => product_id === id && stars === 5).slice(0, 3),
      );
      return [ids, loved.map((some) => some.map(({ id }) => [id]))];
    },
  },
  "names-of-last-order": {
    question:
      "What did customers 8 and 9 buy in their newest order (by day, of one day that with the largest id)? Answer with a list of [customer's name, [order id, list of [pieces, [product's name]]]], the lines in their order.",
    calls: [
      select("customers", {
        columns: ["name"],
        include: [
          {
            as: "last",
            table: "orders",
            on: "orders.customer_id = customers.id",
            columns: ["id"],
            order_by: newestFirst,
            one: true,
            include: [
              {
                as: "lines",
                table: "order_lines",
                on: "order_lines.order_id = orders.id",
                columns: ["quantity"],
                order_by: asc("line"),
                include: [
                  {
                    as: "product",
                    table: "products",
                    on: "products.id = order_lines.product_id",
                    columns: ["name"],
                    one: true,
                  },
                ],
              },
            ],
          },
        ],
        where: term("id", "IN", [8, 9]),
        order_by: asc("id"),
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      [8, 9].map((id) => {
        const [last] = newestOrders(shop, id);
        const lines = last === undefined ? [] : linesOf(shop, last);
        const bought = lines.map((line) => [
          line.quantity,
          [byId(shop.products, line.product_id).name],
        ]);
        return [byId(shop.customers, id).name, last === undefined ? null : [last.id, bought]];
      }),
  },
};
