/** Computes the answers from all rows of the shop, without a database. */
import { changes } from "./reference-changes.ts";
import { tellings } from "./reference-joins.ts";
import type { Shop } from "./shop.ts";
import { byText, columnsOf, count, type Reference, sum, tally } from "./tally.ts";

const october = ({ day }: { day: string }) => day >= "2025-10-01" && day <= "2025-10-31";

const counts: Readonly<Record<string, Reference>> = {
  customers: ({ sizes }) => sizes.customers,
  vips: (shop) => count(shop.customers(), ({ vip }) => vip),
  "no-city": (shop) => count(shop.customers(), ({ city }) => city === null),
  "with-coupon": (shop) => count(shop.orders(), ({ coupon }) => coupon !== null),
  "name-begins": (shop) => count(shop.customers(), ({ name }) => name.startsWith("An")),
  "email-case": (shop) =>
    count(shop.customers(), ({ email }) => email.toLowerCase().startsWith("karin.adler.")),
  "given-back": (shop) =>
    count(shop.orders(), ({ status }) => status === "returned" || status === "cancelled"),
  "under-way": (shop) =>
    count(shop.orders(), ({ status }) => status === "paid" || status === "open"),
  "orders-of-a-month": (shop) => count(shop.orders(), october),
  "middling-orders": (shop) =>
    count(shop.orders(), ({ total_cents }) => total_cents >= 10_000 && total_cents <= 20_000),
  "alpine-vips": (shop) =>
    count(shop.customers(), ({ vip, country }) => vip && (country === "AT" || country === "CH")),
  "not-from-germany": (shop) =>
    count(
      shop.customers(),
      ({ country, city }) => country !== "DE" && city !== null && city !== "Graz",
    ),
  broken: (shop) => count(shop.reviews(), ({ text }) => text?.includes("broken") === true),
  "vip-orders": (shop) => count(shop.orders(), ({ customer_id }) => shop.customer(customer_id).vip),
  "never-ordered": (shop) => shop.sizes.customers - buyersOf(shop).size,
  buyers: (shop) => buyersOf(shop).size,
};

function buyersOf(shop: Shop): Set<number> {
  return new Set(columnsOf(shop.orders(), ({ customer_id }) => customer_id));
}

const cents = ({ total_cents }: { total_cents: number }) => total_cents;
const isPaid = ({ status }: { status: string }) => status === "paid";

function largest(shop: Shop, most: number): [number, number][] {
  const spent = tally(shop.orders(), ({ customer_id }) => customer_id, cents);
  return [...spent].sort(([one, a], [other, b]) => b - a || one - other).slice(0, most);
}

function ordersOf(shop: Shop): [number, number][] {
  return [...tally(shop.orders(), ({ customer_id }) => customer_id)];
}

const groups: Readonly<Record<string, Reference>> = {
  "orders-by-country": (shop) => byText(tally(shop.orders(), ({ country }) => country)),
  "month-by-country": (shop) =>
    byText(tally(shop.orders().filter(october), ({ country }) => country)),
  "paid-revenue": (shop) => sum(shop.orders().filter(isPaid), cents),
  "average-order": (shop) => {
    const french = [
      ...columnsOf(
        shop.orders().filter(({ country }) => country === "FR"),
        cents,
      ),
    ];
    return sum(french, (each) => each) / french.length;
  },
  extremes: (shop) => {
    const all = [...columnsOf(shop.orders(), cents)].sort((one, other) => one - other);
    return [all[0], all.at(-1)];
  },
  "paid-figures": (shop) => {
    const orders = count(shop.orders(), isPaid);
    const paid = sum(shop.orders().filter(isPaid), cents);
    return [orders, paid, paid / orders];
  },
  statuses: (shop) =>
    byText(tally(shop.orders(), ({ status }) => status)).sort(([, a], [, b]) => b - a),
  "best-country": (shop) =>
    byText(tally(shop.orders(), ({ country }) => country, cents)).sort(([, a], [, b]) => b - a)[0],
  regulars: (shop) =>
    ordersOf(shop)
      .filter(([, orders]) => orders >= 13)
      .sort(([one], [other]) => one - other),
  "best-customers": (shop) => largest(shop, 5),
  "best-emails": (shop) => largest(shop, 3).map(([id, spent]) => [shop.customer(id).email, spent]),
  "frequent-customers": (shop) =>
    ordersOf(shop)
      .sort(([one, a], [other, b]) => b - a || one - other)
      .slice(0, 3),
  categories: (shop) => [...new Set(columnsOf(shop.products(), ({ category }) => category))].sort(),
  cheapest: (shop) => {
    const least = new Map<string, number>();
    for (const { category, price_cents } of shop.products()) {
      least.set(category, Math.min(least.get(category) ?? price_cents, price_cents));
    }
    return byText(least);
  },
  discontinued: (shop) => {
    const ended = shop.products().filter((product) => product.discontinued);
    return new Set(columnsOf(ended, ({ category }) => category)).size;
  },
  stars: (shop) =>
    [...tally(shop.reviews(), (review) => review.stars)].sort(([one], [other]) => one - other),
  "stars-of-product": (shop) => {
    const found = [...shop.reviews().filter(({ product_id }) => product_id === 5)];
    return [sum(found, (review) => review.stars) / found.length, found.length];
  },
  "best-rated": (shop) => {
    const reviews = tally(shop.reviews(), ({ product_id }) => product_id);
    const given = tally(
      shop.reviews(),
      ({ product_id }) => product_id,
      (review) => review.stars,
    );
    return [...reviews]
      .map(([id, number]) => [id, (given.get(id) ?? 0) / number, number] as const)
      .filter(([, average, number]) => number >= 8 && average >= 4.3)
      .sort(([one], [other]) => one - other)
      .slice(0, 3);
  },
  "first-joined": (shop) => [...columnsOf(shop.customers(), ({ joined }) => joined)].sort()[0],
};

/** Answers by question, with the expected state after changes. */
export const references: Readonly<Record<string, Reference>> = {
  ...counts,
  ...groups,
  ...tellings,
  ...Object.fromEntries(Object.entries(changes).map(([id, { answer }]) => [id, answer])),
};

export const afterwards: Readonly<Record<string, Reference>> = Object.fromEntries(
  Object.entries(changes).map(([id, { after }]) => [id, after]),
);
