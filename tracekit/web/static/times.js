"use strict";

// Times are UTC until a browser says where it is.
{
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const localize = () => {
    for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
      time.title = time.textContent;
      time.textContent = format.format(new Date(time.dateTime));
    }
  };
  localize();
  document.addEventListener("htmx:afterSettle", localize);
}
