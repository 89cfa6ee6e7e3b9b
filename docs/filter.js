/* Puts a filter above each long table: rows that lack one of the words are hidden. */
(function () {
  "use strict";
  var ROWS_MIN = 15;

  function addFilter(table) {
    var rows = Array.prototype.slice.call(table.tBodies[0] ? table.tBodies[0].rows : []);
    if (rows.length < ROWS_MIN || table.previousElementSibling && table.previousElementSibling.className === "filter") {
      return;
    }
    var box = document.createElement("div");
    var input = document.createElement("input");
    var count = document.createElement("span");
    box.className = "filter";
    input.type = "search";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "Filter rows");
    box.appendChild(input);
    box.appendChild(count);
    var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
    function apply() {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      var shown = 0;
      rows.forEach(function (row, number) {
        var fits = words.every(function (word) { return texts[number].indexOf(word) !== -1; });
        row.style.display = fits ? "" : "none";
        shown += fits ? 1 : 0;
      });
      count.textContent = " " + shown + " of " + rows.length + " rows";
    }
    input.addEventListener("input", apply);
    table.parentNode.insertBefore(box, table);
    apply();
  }

  function addFilters() {
    Array.prototype.forEach.call(document.querySelectorAll("article table"), addFilter);
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", addFilters);
  } else {
    addFilters();
  }
})();
