/** Questions about several tables, single rows, pages, and the shop itself. */
import {
  $,
  aggregate,
  asc,
  call,
  database,
  desc,
  inner,
  type Questions,
  select,
  term,
} from "./question.ts";
import { byId, type Order, type Shop } from "./shop.ts";
import { byKey, largestFirst, tally } from "./tally.ts";

/** Newest first; on the same day, the larger id first. */
function newestFirst(
  one: { readonly day: string; readonly id: number },
  other: { readonly day: string; readonly id: number },
): number {
  if (one.day !== other.day) return one.day < other.day ? 1 : -1;
  return other.id - one.id;
}

function bestSeller(shop: Shop): [number, number] | undefined {
  const sold = tally(
    shop.order_lines,
    ({ product_id }) => product_id,
    ({ quantity }) => quantity,
  );
  return largestFirst(sold)[0];
}

function newestOrders(shop: Shop, isMeant: (order: Order) => boolean): Order[] {
  return shop.orders.filter(isMeant).sort(newestFirst);
}

function byCountry(shop: Shop): number[] {
  const all = [...shop.customers];
  all.sort((one, other) => {
    if (one.country !== other.country) return one.country < other.country ? -1 : 1;
    return one.id - other.id;
  });
  return all.map(({ id }) => id);
}

export const joins: Questions = {
  "category-revenue": {
    question:
      "What did each category bring, in cents? Answer with a list of [category, cents], by category.",
    calls: [
      select("order_lines", {
        join: inner("products", "order_lines.product_id = products.id"),
        group_by: ["products.category"],
        aggregate: [aggregate("sum", "revenue", "cents")],
        order_by: [asc("products.category")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      byKey(
        tally(
          shop.order_lines,
          ({ product_id }) => byId(shop.products, product_id).category,
          ({ cents }) => cents,
        ),
      ),
  },
  "books-by-country": {
    question:
      "What did books bring in each country, in cents? Answer with a list of [country, cents], by country.",
    calls: [
      select("order_lines", {
        join: [
          inner("products", "order_lines.product_id = products.id"),
          inner("orders", "order_lines.order_id = orders.id"),
        ],
        group_by: ["orders.country"],
        aggregate: [aggregate("sum", "revenue", "order_lines.cents")],
        where: term("products.category", "=", "books"),
        order_by: [asc("orders.country")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) => {
      const books = shop.order_lines.filter(
        ({ product_id }) => byId(shop.products, product_id).category === "books",
      );
      const revenue = tally(
        books,
        ({ order_id }) => byId(shop.orders, order_id).country,
        ({ cents }) => cents,
      );
      return byKey(revenue);
    },
  },
  "best-seller": {
    question:
      "Which product was sold most often, and how many pieces? Answer with [product id, pieces]; of equal ones the one with the smaller id.",
    calls: [
      select("order_lines", {
        group_by: ["product_id"],
        aggregate: [aggregate("sum", "pieces", "quantity")],
        order_by: [desc("pieces"), asc("product_id")],
        limit: 1,
      }),
    ],
    answer: [$("0.rows.0.product_id"), $("0.rows.0.pieces")],
    expected: bestSeller,
  },
  "never-sold": {
    question:
      "Which products were never sold? Answer with a list of their ids, the smallest first.",
    calls: [
      select("products", {
        columns: ["products.id"],
        join: {
          table: "order_lines",
          on: "products.id = order_lines.product_id",
          join_type: "LEFT",
        },
        where: term("order_lines.order_id", "=", null),
        order_by: [asc("products.id")],
      }),
    ],
    answer: $("0.rows.*.id"),
    expected: (shop) => {
      const sold = tally(shop.order_lines, ({ product_id }) => product_id);
      return [...shop.products].map(({ id }) => id).filter((id) => !sold.has(id));
    },
  },
  "whose-order": {
    question: "Who made order 100? Answer with [name, email].",
    calls: [
      select("orders", {
        columns: ["name", "email"],
        join: inner("customers", "orders.customer_id = customers.id"),
        where: term("orders.id", "=", 100),
      }),
    ],
    answer: [$("0.rows.0.name"), $("0.rows.0.email")],
    expected: (shop) => {
      const { name, email } = byId(shop.customers, byId(shop.orders, 100).customer_id);
      return [name, email];
    },
  },
  "what-was-ordered": {
    question:
      "What does order 100 consist of? Answer with a list of [product name, quantity], in the order of its lines.",
    calls: [
      select("order_lines", {
        columns: ["name", "quantity"],
        join: inner("products", "order_lines.product_id = products.id"),
        where: term("order_id", "=", 100),
        order_by: [asc("line")],
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      shop.order_lines
        .filter(({ order_id }) => order_id === 100)
        .map(({ product_id, quantity }) => [byId(shop.products, product_id).name, quantity]),
  },
  "order-figures": {
    question:
      "How many lines does order 200 have, and how many pieces in all? Answer with [lines, pieces].",
    calls: [
      select("order_lines", {
        aggregate: [aggregate("count", "n"), aggregate("sum", "pieces", "quantity")],
        where: term("order_id", "=", 200),
      }),
    ],
    answer: [$("0.rows.0.n"), $("0.rows.0.pieces")],
    expected: (shop) => {
      const lines = shop.order_lines.filter(({ order_id }) => order_id === 200);
      return [lines.length, lines.reduce((pieces, { quantity }) => pieces + quantity, 0)];
    },
  },
  "one-product": {
    question: "What does the product SKU-00017 cost, in cents? Answer with a number.",
    calls: [select("products", { columns: ["price_cents"], where: term("sku", "=", "SKU-00017") })],
    answer: $("0.rows.0.price_cents"),
    expected: (shop) => byId(shop.products, 17).price_cents,
  },
  "one-email": {
    question: "What is the email of customer 42?",
    calls: [select("customers", { columns: ["email"], where: term("id", "=", 42) })],
    answer: $("0.rows.0.email"),
    expected: (shop) => byId(shop.customers, 42).email,
  },
  "last-order": {
    question:
      "What is the id of the newest order of customer 7 (by day, of one day the one with the largest id), and its day? Answer with [id, day].",
    calls: [
      select("orders", {
        columns: ["id", "day"],
        where: term("customer_id", "=", 7),
        order_by: [desc("day"), desc("id")],
        limit: 1,
      }),
    ],
    answer: [$("0.rows.0.id"), $("0.rows.0.day")],
    expected: (shop) => {
      const [last] = newestOrders(shop, ({ customer_id }) => customer_id === 7);
      return [last?.id, last?.day];
    },
  },
  "eleventh-to-twentieth": {
    question:
      "Which are the 11th to the 20th newest orders (by day, of one day those with the largest ids first)? Answer with the list of their ids.",
    calls: [
      select("orders", {
        columns: ["id"],
        order_by: [desc("day"), desc("id")],
        limit: 10,
        offset: 10,
      }),
    ],
    answer: $("0.rows.*.id"),
    expected: (shop) =>
      newestOrders(shop, () => true)
        .slice(10, 20)
        .map(({ id }) => id),
  },
  "third-page": {
    question:
      "List the customers by country, those of one country by id, five a page: which ids are on the third page? Answer with a list.",
    calls: [
      select("customers", {
        columns: ["country", "id"],
        order_by: [asc("country"), asc("id")],
        limit: 5,
      }),
      select("customers", {
        columns: ["country", "id"],
        order_by: [asc("country"), asc("id")],
        after: $("0.next_after"),
        limit: 5,
      }),
      select("customers", {
        columns: ["country", "id"],
        order_by: [asc("country"), asc("id")],
        after: $("1.next_after"),
        limit: 5,
      }),
    ],
    answer: $("2.rows.*.id"),
    expected: (shop) => byCountry(shop).slice(10, 15),
  },
  "is-there-more": {
    question:
      "Are there more than three orders with the coupon C03 from PL? Answer with true or false.",
    calls: [
      select("orders", {
        columns: ["id"],
        where: { and: [term("coupon", "=", "C03"), term("country", "=", "PL")] },
        limit: 3,
      }),
    ],
    answer: $("0.truncated"),
    expected: (shop) =>
      newestOrders(shop, ({ coupon, country }) => coupon === "C03" && country === "PL").length > 3,
  },
  "latest-reviews": {
    question:
      "What did the latest three reviews of product 5 say (by day, of one day those with the largest ids first)? Answer with a list of [stars, text].",
    calls: [
      select("reviews", {
        columns: ["stars", "text"],
        where: term("product_id", "=", 5),
        order_by: [desc("day"), desc("id")],
        limit: 3,
      }),
    ],
    answer: $("0.rows"),
    expected: (shop) =>
      [...shop.reviews.filter(({ product_id }) => product_id === 5)]
        .sort(newestFirst)
        .slice(0, 3)
        .map(({ stars, text }) => [stars, text]),
  },
  "three-counts": {
    question:
      "How many customers, products and reviews are there? Answer with [customers, products, reviews].",
    calls: [
      call("batch", {
        operations: [
          { Select: { database, from: "customers", aggregate: [aggregate("count", "n")] } },
          { Select: { database, from: "products", aggregate: [aggregate("count", "n")] } },
          { Select: { database, from: "reviews", aggregate: [aggregate("count", "n")] } },
        ],
      }),
    ],
    answer: [$("0.results.0.0.n"), $("0.results.1.0.n"), $("0.results.2.0.n")],
    expected: ({ customers, products, reviews }) => [
      customers.length,
      products.length,
      reviews.length,
    ],
  },
  tables: {
    question: "Which tables does the shop have? Answer with a sorted list.",
    calls: [call("list_tables", { database })],
    answer: $("0.tables"),
    expected: (shop) => Object.keys(shop).sort(),
  },
  "key-of-lines": {
    question: "By which columns is a line of an order identified? Answer with a list.",
    calls: [call("describe_table", { database, table: "order_lines" })],
    answer: $("0.keys.0"),
    expected: () => ["order_id", "line"],
  },
  "my-rights": {
    question:
      "What may you do in the shop? Answer with the list of your rights, SELECT first, then INSERT, UPDATE, DELETE and so on.",
    calls: [call("whoami")],
    answer: $("0.access.0.rights"),
    expected: () => ["SELECT", "INSERT", "UPDATE", "DELETE"],
  },
};
