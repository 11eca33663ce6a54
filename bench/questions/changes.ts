/** Questions that ask for changes. */
import {
  $,
  asc,
  call,
  count,
  database,
  desc,
  inner,
  type Questions,
  select,
  term,
} from "./question.ts";
import { byId, type Shop } from "./shop.ts";

const cheap = (shop: Shop) => shop.coupons.filter(({ percent }) => percent <= 10);

export const changes: Questions = {
  "put-into-cart": {
    question:
      "Put two pieces of product 8 into the cart of customer 20. What is the id of the new entry? Answer with a number.",
    calls: [
      call("insert", {
        database,
        table: "carts",
        values: [{ customer_id: 20, product_id: 8, quantity: 2 }],
        returning: ["id"],
      }),
    ],
    answer: $("0.rows.0.id"),
    expected: () => 11,
    check: {
      ...select("carts", {
        columns: ["customer_id", "product_id", "quantity"],
        where: term("id", "=", 11),
      }),
      answer: $("0.rows"),
      expected: () => [[20, 8, 2]],
    },
  },
  "sell-three": {
    question:
      "Three pieces of product 9 leave the stock in the north. How many are left there? Answer with a number.",
    calls: [
      call("update", {
        database,
        table: "stock",
        add: { north: -3 },
        where: term("product_id", "=", 9),
        returning: ["north"],
      }),
    ],
    answer: $("0.rows.0.north"),
    expected: (shop) => byId(shop.stock, 9).north - 3,
    check: {
      ...select("stock", { columns: ["north"], where: term("product_id", "=", 9) }),
      answer: $("0.rows"),
      expected: (shop) => [[byId(shop.stock, 9).north - 3]],
    },
  },
  "move-stock": {
    question:
      "Move five pieces of product 10 from north to south. How many are there then? Answer with [north, south].",
    calls: [
      call("update", {
        database,
        table: "stock",
        add: { north: -5, south: 5 },
        where: term("product_id", "=", 10),
        returning: ["north", "south"],
      }),
    ],
    answer: [$("0.rows.0.north"), $("0.rows.0.south")],
    expected: (shop) => [byId(shop.stock, 10).north - 5, byId(shop.stock, 10).south + 5],
    check: {
      ...select("stock", { columns: ["north", "south"], where: term("product_id", "=", 10) }),
      answer: $("0.rows"),
      expected: (shop) => [[byId(shop.stock, 10).north - 5, byId(shop.stock, 10).south + 5]],
    },
  },
  "what-if": {
    question:
      "How many coupons would be deleted, if all those of 10 percent or less were, and which? Do not delete any. Answer with [number, list of codes].",
    calls: [
      call("preview", { Delete: { database, table: "coupons", where: term("percent", "<=", 10) } }),
    ],
    answer: [$("0.affected"), $("0.before.*.code")],
    expected: (shop) => [cheap(shop).length, cheap(shop).map(({ code }) => code)],
    check: {
      ...count("coupons", { where: term("percent", "<=", 10) }),
      answer: $("0.count"),
      expected: (shop) => cheap(shop).length,
    },
  },
  "add-or-change": {
    question:
      "Set the coupon C20 to 50 percent and add a coupon SUMMER of 15 percent, whichever of the two is there. How many coupons were added or changed? Answer with a number.",
    calls: [
      call("upsert", {
        database,
        table: "coupons",
        values: [
          { code: "C20", percent: 50 },
          { code: "SUMMER", percent: 15 },
        ],
        on_conflict: ["code"],
        update: ["percent"],
      }),
    ],
    answer: $("0.affected"),
    expected: () => 2,
    check: {
      ...select("coupons", {
        columns: ["code", "percent"],
        where: term("code", "IN", ["C20", "SUMMER"]),
        order_by: asc("code"),
      }),
      answer: $("0.rows"),
      expected: () => [
        ["C20", 50],
        ["SUMMER", 15],
      ],
    },
  },
  "all-or-nothing": {
    question:
      "The carts of customers 3 and 4 are one from now on: delete that of customer 4, and raise the quantity in that of customer 3 by one, both or neither. What is the quantity then? Answer with a number.",
    calls: [
      call("batch", {
        operations: [
          { Delete: { database, table: "carts", where: term("customer_id", "=", 4) } },
          {
            Update: {
              database,
              table: "carts",
              add: { quantity: 1 },
              where: term("customer_id", "=", 3),
              returning: ["quantity"],
            },
          },
        ],
      }),
    ],
    answer: $("0.results.1.data.0.quantity"),
    expected: () => 2,
    check: {
      ...select("carts", {
        columns: ["customer_id", "quantity"],
        where: term("customer_id", "IN", [3, 4]),
      }),
      answer: $("0.rows"),
      expected: () => [[3, 2]],
    },
  },
  "register-return": {
    question:
      "Register a return of order 12 with the reason Too small, and in it two pieces of its line 1, both or neither. What is the id of the return? Answer with a number.",
    calls: [
      call("batch", {
        operations: [
          {
            Insert: {
              database,
              table: "returns",
              values: [{ order_id: 12, reason: "Too small" }],
              returning: ["id"],
            },
          },
          {
            Insert: {
              database,
              table: "return_lines",
              values: [{ line: 1, quantity: 2 }],
              bind: { return_id: { element: 0, column: "id" } },
            },
          },
        ],
      }),
    ],
    answer: $("0.results.0.data.0.id"),
    expected: () => 6,
    check: {
      ...select("return_lines", {
        columns: ["order_id", "reason", "line", "quantity"],
        join: inner("returns", "return_lines.return_id = returns.id"),
        where: term("line", "=", 1),
        order_by: desc("return_id"),
        limit: 1,
      }),
      answer: $("0.rows"),
      expected: () => [[12, "Too small", 1, 2]],
    },
  },
  "replace-coupon": {
    question:
      "Delete the coupon C16, and add a coupon AUTUMN with as many percent as it had, both or neither. How many percent are these? Answer with a number.",
    calls: [
      call("batch", {
        operations: [
          {
            Delete: {
              database,
              table: "coupons",
              where: term("code", "=", "C16"),
              returning: ["percent"],
              expect: 1,
            },
          },
          {
            Insert: {
              database,
              table: "coupons",
              values: [{ code: "AUTUMN" }],
              bind: { percent: { element: 0, column: "percent" } },
            },
          },
        ],
      }),
    ],
    answer: $("0.results.0.data.0.percent"),
    expected: () => 25,
    check: {
      ...select("coupons", {
        columns: ["code", "percent", "uses"],
        where: term("code", "IN", ["C16", "AUTUMN"]),
      }),
      answer: $("0.rows"),
      expected: () => [["AUTUMN", 25, 0]],
    },
  },
  "not-enough": {
    question:
      "Take 500 pieces of product 11 out of the stock in the north, if there are so many, and put them into a cart of customer 30: both or neither. Was it refused? Answer with true or false.",
    calls: [
      call("batch", {
        operations: [
          {
            Update: {
              database,
              table: "stock",
              add: { north: -500 },
              where: { and: [term("product_id", "=", 11), term("north", ">=", 500)] },
              expect: 1,
            },
          },
          {
            Insert: {
              database,
              table: "carts",
              values: [{ customer_id: 30, product_id: 11, quantity: 500 }],
            },
          },
        ],
      }),
    ],
    answer: $("0.isError"),
    expected: () => true,
    check: {
      ...select("stock", { columns: ["north"], where: term("product_id", "=", 11) }),
      answer: $("0.rows"),
      expected: (shop) => [[byId(shop.stock, 11).north]],
    },
  },
  "stock-after": {
    question:
      "How many pieces of product 13 would be in the north, and then in the south, if ten of them were moved from north to south and then half a dozen were sold in the south? Change nothing. Answer with [north, south].",
    calls: [
      call("preview", {
        Batch: [
          {
            Update: {
              database,
              table: "stock",
              add: { north: -10, south: 10 },
              where: term("product_id", "=", 13),
            },
          },
          {
            Update: {
              database,
              table: "stock",
              add: { south: -6 },
              where: term("product_id", "=", 13),
              returning: ["north", "south"],
            },
          },
        ],
      }),
    ],
    answer: [$("0.results.1.after.0.north"), $("0.results.1.after.0.south")],
    expected: (shop) => [byId(shop.stock, 13).north - 10, byId(shop.stock, 13).south + 4],
    check: {
      ...select("stock", { columns: ["north", "south"], where: term("product_id", "=", 13) }),
      answer: $("0.rows"),
      expected: (shop) => [[byId(shop.stock, 13).north, byId(shop.stock, 13).south]],
    },
  },
};
