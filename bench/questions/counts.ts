/** Questions that count rows. */
import { $, count, inner, type Questions, select, term } from "./question.ts";
import { byId, type Shop } from "./shop.ts";

export const october = ({ day }: { day: string }) => day >= "2025-10-01" && day <= "2025-10-31";

function buyersOf(shop: Shop): Set<number> {
  return new Set(shop.orders.map(({ customer_id }) => customer_id));
}

export const counts: Questions = {
  customers: {
    question: "How many customers are there? Answer with a number.",
    calls: [count("customers")],
    answer: $("0.count"),
    expected: ({ customers }) => customers.length,
  },
  vips: {
    question: "How many customers are VIPs? Answer with a number.",
    calls: [count("customers", { where: term("vip", "=", true) })],
    answer: $("0.count"),
    expected: (shop) => shop.customers.filter(({ vip }) => vip).length,
  },
  "no-city": {
    question: "Of how many customers is no city known? Answer with a number.",
    calls: [count("customers", { where: term("city", "=", null) })],
    answer: $("0.count"),
    expected: (shop) => shop.customers.filter(({ city }) => city === null).length,
  },
  "with-coupon": {
    question: "How many orders were made with a coupon? Answer with a number.",
    calls: [count("orders", { where: term("coupon", "!=", null) })],
    answer: $("0.count"),
    expected: (shop) => shop.orders.filter(({ coupon }) => coupon !== null).length,
  },
  "name-begins": {
    question: "How many customers have a name that begins with An? Answer with a number.",
    calls: [count("customers", { where: term("name", "LIKE", "An%") })],
    answer: $("0.count"),
    expected: (shop) => shop.customers.filter(({ name }) => name.startsWith("An")).length,
  },
  "email-case": {
    question:
      "How many customers have an email that begins with karin.adler, in whatever case? Answer with a number.",
    calls: [count("customers", { where: term("email", "ILIKE", "karin.adler.%") })],
    answer: $("0.count"),
    expected: (shop) =>
      shop.customers.filter(({ email }) => email.toLowerCase().startsWith("karin.adler.")).length,
  },
  "given-back": {
    question: "How many orders were returned or cancelled? Answer with a number.",
    calls: [count("orders", { where: term("status", "IN", ["returned", "cancelled"]) })],
    answer: $("0.count"),
    expected: (shop) =>
      shop.orders.filter(({ status }) => status === "returned" || status === "cancelled").length,
  },
  "under-way": {
    question:
      "How many orders are neither returned nor cancelled nor shipped? Answer with a number.",
    calls: [
      count("orders", { where: term("status", "NOT IN", ["returned", "cancelled", "shipped"]) }),
    ],
    answer: $("0.count"),
    expected: (shop) =>
      shop.orders.filter(({ status }) => status === "paid" || status === "open").length,
  },
  "orders-of-a-month": {
    question: "How many orders were made in October 2025? Answer with a number.",
    calls: [count("orders", { where: term("day", "BETWEEN", ["2025-10-01", "2025-10-31"]) })],
    answer: $("0.count"),
    expected: (shop) => shop.orders.filter(october).length,
  },
  "middling-orders": {
    question:
      "How many orders came to between 100.00 and 200.00, both included? Answer with a number.",
    calls: [count("orders", { where: term("total_cents", "BETWEEN", [10000, 20000]) })],
    answer: $("0.count"),
    expected: (shop) =>
      shop.orders.filter(({ total_cents }) => total_cents >= 10_000 && total_cents <= 20_000)
        .length,
  },
  "alpine-vips": {
    question: "How many VIPs live in Austria (AT) or Switzerland (CH)? Answer with a number.",
    calls: [
      count("customers", {
        where: {
          and: [
            term("vip", "=", true),
            { or: [term("country", "=", "AT"), term("country", "=", "CH")] },
          ],
        },
      }),
    ],
    answer: $("0.count"),
    expected: (shop) =>
      shop.customers.filter(({ vip, country }) => vip && (country === "AT" || country === "CH"))
        .length,
  },
  "not-from-germany": {
    question:
      "How many customers live neither in DE nor in Graz, of those whose city is known? Answer with a number.",
    calls: [
      count("customers", {
        where: { not: { or: [term("country", "=", "DE"), term("city", "=", "Graz")] } },
      }),
    ],
    answer: $("0.count"),
    expected: (shop) =>
      shop.customers.filter(
        ({ country, city }) => country !== "DE" && city !== null && city !== "Graz",
      ).length,
  },
  broken: {
    question: "How many reviews say that something came broken? Answer with a number.",
    calls: [count("reviews", { where: term("text", "LIKE", "%broken%") })],
    answer: $("0.count"),
    expected: (shop) => shop.reviews.filter(({ text }) => text?.includes("broken") === true).length,
  },
  "vip-orders": {
    question: "How many orders were made by VIPs? Answer with a number.",
    calls: [
      count("orders", {
        join: inner("customers", "orders.customer_id = customers.id"),
        where: term("customers.vip", "=", true),
      }),
    ],
    answer: $("0.count"),
    expected: (shop) =>
      shop.orders.filter(({ customer_id }) => byId(shop.customers, customer_id).vip).length,
  },
  "never-ordered": {
    question: "How many customers have never ordered? Answer with a number.",
    calls: [
      count("customers", {
        join: { table: "orders", on: "customers.id = orders.customer_id", join_type: "LEFT" },
        where: term("orders.id", "=", null),
      }),
    ],
    answer: $("0.count"),
    expected: (shop) => shop.customers.length - buyersOf(shop).size,
  },
  buyers: {
    question: "How many different customers have ordered? Answer with a number.",
    calls: [
      select("orders", {
        aggregate: [{ fn: "count", column: "customer_id", distinct: true, as: "n" }],
      }),
    ],
    answer: $("0.rows.0.n"),
    expected: (shop) => buyersOf(shop).size,
  },
};
