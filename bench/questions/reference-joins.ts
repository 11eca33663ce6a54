/** Answers to questions about several tables, single rows, pages, and the shop. */
import type { Order, Shop } from "./shop.ts";
import { byText, type Reference, tally } from "./tally.ts";

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
    shop.orderLines(),
    ({ product_id }) => product_id,
    ({ quantity }) => quantity,
  );
  return [...sold].sort(([one, a], [other, b]) => b - a || one - other)[0];
}

function newestOrders(shop: Shop, isMeant: (order: Order) => boolean): Order[] {
  return [...shop.orders().filter(isMeant)].sort(newestFirst);
}

function byCountry(shop: Shop): number[] {
  const all = [...shop.customers()];
  all.sort((one, other) => {
    if (one.country !== other.country) return one.country < other.country ? -1 : 1;
    return one.id - other.id;
  });
  return all.map(({ id }) => id);
}

export const tellings: Readonly<Record<string, Reference>> = {
  "category-revenue": (shop) =>
    byText(
      tally(
        shop.orderLines(),
        ({ product_id }) => shop.product(product_id).category,
        ({ cents }) => cents,
      ),
    ),
  "books-by-country": (shop) => {
    const books = shop
      .orderLines()
      .filter(({ product_id }) => shop.product(product_id).category === "books");
    const revenue = tally(
      books,
      ({ order_id }) => shop.order(order_id).country,
      ({ cents }) => cents,
    );
    return byText(revenue);
  },
  "best-seller": bestSeller,
  "best-seller-name": (shop) => shop.product(bestSeller(shop)?.[0] ?? 0).name,
  "never-sold": (shop) => {
    const sold = tally(shop.orderLines(), ({ product_id }) => product_id);
    return [...shop.products()].map(({ id }) => id).filter((id) => !sold.has(id));
  },
  "whose-order": (shop) => {
    const { name, email } = shop.customer(shop.order(100).customer_id);
    return [name, email];
  },
  "what-was-ordered": (shop) =>
    shop.lines(100).map(({ product_id, quantity }) => [shop.product(product_id).name, quantity]),
  "order-figures": (shop) => {
    const lines = shop.lines(200);
    return [lines.length, lines.reduce((pieces, { quantity }) => pieces + quantity, 0)];
  },
  "one-product": (shop) => shop.product(17).price_cents,
  "one-email": (shop) => shop.customer(42).email,
  "last-order": (shop) => {
    const [last] = newestOrders(shop, ({ customer_id }) => customer_id === 7);
    return [last?.id, last?.day];
  },
  "eleventh-to-twentieth": (shop) =>
    newestOrders(shop, () => true)
      .slice(10, 20)
      .map(({ id }) => id),
  "third-page": (shop) => byCountry(shop).slice(10, 15),
  "is-there-more": (shop) =>
    newestOrders(shop, ({ coupon, country }) => coupon === "C03" && country === "PL").length > 3,
  "latest-reviews": (shop) =>
    [...shop.reviews().filter(({ product_id }) => product_id === 5)]
      .sort(newestFirst)
      .slice(0, 3)
      .map(({ stars, text }) => [stars, text]),
  "three-counts": ({ sizes }) => [sizes.customers, sizes.products, sizes.reviews],
  tables: () => [
    ...["carts", "coupons", "customers", "order_lines", "orders", "products", "reviews", "stock"],
  ],
  "key-of-lines": () => ["order_id", "line"],
  "my-rights": () => ["SELECT", "INSERT", "UPDATE", "DELETE"],
};
