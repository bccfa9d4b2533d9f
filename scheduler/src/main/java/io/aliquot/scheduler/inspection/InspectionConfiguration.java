package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Ticker;
import io.aliquot.scheduler.ledger.Ledger;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class InspectionConfiguration {
    @Bean
    AccessControl access(AccessReviews reviews) {
        return new AccessControl(reviews, Ticker.systemTicker());
    }

    @Bean
    ApiMapper stock(Ledger ledger) {
        return new ApiMapper(ledger);
    }

    /** Paths below /api reach us by the API's own port alone (package server). */
    @Bean
    FilterRegistrationBean<TokenFilter> tokens(AccessControl access) {
        var registration = new FilterRegistrationBean<>(new TokenFilter(access));
        registration.addUrlPatterns("/api/*");
        return registration;
    }
}
